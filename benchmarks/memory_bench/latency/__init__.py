"""Measures the latency of recall at several table sizes, beside a plain design of two queries and fusion in Python."""
