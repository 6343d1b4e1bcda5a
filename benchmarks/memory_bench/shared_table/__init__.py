"""Measures how much migrations, index builds and the HNSW index slow down other users of a shared table."""
