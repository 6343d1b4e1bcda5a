"""Runs MemoryIndex objects where admission changes what the operator sends, and beside copies of a Postgres server."""
