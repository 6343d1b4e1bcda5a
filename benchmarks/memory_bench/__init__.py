"""Measures retrieval: labelled sets, pluggable retrievers, significance, and reports that can be made again."""
