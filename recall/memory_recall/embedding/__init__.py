"""Embedders: a client of our embedding service, one of a hosted provider, and one that follows model swaps."""
