"""Embedders: the client of our service, that of a hosted provider, and one that follows model swaps."""
