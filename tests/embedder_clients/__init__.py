"""`make e2e-clients`: clients that exist ask the embedder with their defaults."""
