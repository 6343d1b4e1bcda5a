"""Indexing: the backfill and the sync worker, which embed pending rows and store the vectors."""
