"""Model swaps: the embedding model is replaced while recalls go on, if the next one passes a measurement."""
