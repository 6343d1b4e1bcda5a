"""The HNSW index: its definition, build, check and repair, and how many candidates a search keeps."""
