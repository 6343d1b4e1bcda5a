"""Measures the speed of the embedder over HTTP, beside other programs and the limits of the machine.

A measured program is called a subject: our server, llama-server, the raw loop over llama.cpp's encode call, the `Llama`
class. In each round every subject is measured once, and every second round has the reverse order. The result is the
median of the rounds' ratios, so that a machine that slows down for a while slows both sides of a ratio.
"""
