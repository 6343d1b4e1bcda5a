"""The schema: the table of memories, the migration runner and its locks."""
