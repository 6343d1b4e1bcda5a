"""Benchmarks: recall on labelled sets, latency, backfill, swap, the shared table, and the embedder."""
