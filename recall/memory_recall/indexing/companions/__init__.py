"""What the sync worker does beside embedding rows: it fills the graph, checks the index and sweeps recorded hashes."""
