"""Measures what callers with keys of their own take from one another at one embedder."""
