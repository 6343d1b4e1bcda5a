"""Optional parts, each imported by its own name. Only the commands import them, and none imports another.

Some bring an optional dependency: the FastAPI router, metrics for Prometheus, the dates that a query names, the page on
which a person labels questions. Some wrap a recall: query expansion, the second stage, replicas. The others are recall
over SQLite, labelling and curation.
"""
