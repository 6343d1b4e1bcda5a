"""Model files: known profiles, GGUF headers, digests, fetching and conversion."""
