"""Model swaps: replacing the embedding model while recalls go on, by one that passes a measurement."""
