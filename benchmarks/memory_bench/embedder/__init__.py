"""How fast the embedder is: over HTTP, beside its peers and this machine's limits, all in one run.

Every comparison is made in pairs: the subjects take turns within a round, the order turns round from one round to the
next, and what is reported is the median of the rounds' ratios. A machine that slows down for a while then slows both
sides of a ratio.
"""
