"""Measures the speed of the embedder over HTTP, beside other programs and the limits of the machine.

A measured program is called a subject. The subjects are our server, llama-server, a raw loop over llama.cpp's encode
call, and the `Llama` class of llama-cpp-python. Each round measures every subject once; every second round does so in
reverse order. The result is the median of the rounds' ratios, so that a machine that slows down for a while affects
both sides of a ratio alike.
"""
