"""What the sync worker does beside embedding rows: graph, index check, recorded hashes, reading ahead."""
