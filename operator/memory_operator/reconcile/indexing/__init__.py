"""Decide how what is derived from the rows comes into being: vectors, the HNSW index and the concept graph."""
