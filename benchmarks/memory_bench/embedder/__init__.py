"""The speed of the embedder over HTTP, beside other programs and this machine's limits in the same run.

What is measured is called a subject: our server, llama-server, the raw loop, the `Llama` class. In each round every
subject takes its turn, in an order that is reversed from one round to the next. The result is the median of the rounds'
ratios, so that a machine that slows down for a while slows both sides of a ratio.
"""
