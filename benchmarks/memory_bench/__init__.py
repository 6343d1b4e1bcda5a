"""Benchmarks of recall on labelled sets, latency, backfill, model swap, upgrade, shared tables and the embedder."""
