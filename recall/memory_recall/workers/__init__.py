"""The processes that keep vectors complete and fresh: backfill drains the pending rows, sync follows new ones."""
