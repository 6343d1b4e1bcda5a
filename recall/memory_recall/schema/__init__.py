"""The schema: the table of memories, the migrations and their lock, and the rules that triggers enforce."""
