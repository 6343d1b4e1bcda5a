"""Compares smaller vector indexes with HNSW over halves, by the rule of ADR 30."""
