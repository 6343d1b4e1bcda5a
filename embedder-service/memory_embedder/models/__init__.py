"""Models: profiles, GGUF headers, fetching, digests, conversion."""
