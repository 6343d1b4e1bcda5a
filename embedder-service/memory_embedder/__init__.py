"""memory_embedder."""
