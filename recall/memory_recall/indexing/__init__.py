"""Indexing: backfill and sync, from pending rows to stored vectors."""
