"""Measures with 10, 100 and 500 objects how long edits take, and the operator's requests, memory and restart time."""
