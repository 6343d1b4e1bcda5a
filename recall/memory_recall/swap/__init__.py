"""Model swaps: replace the embedding model while recalls go on, if the next model passes a measurement."""
