"""The HNSW index: its definition, build, check and repair, and how deep a search goes."""
