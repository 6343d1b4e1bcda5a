"""Floods a real embedder with requests, 30 % of them malformed, and checks that it survives and uses no more memory."""
