"""memory_recall."""
