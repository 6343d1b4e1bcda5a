"""Measures the latency of recall as the table grows, beside the plain design that recall replaces."""
