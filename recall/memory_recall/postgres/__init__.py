"""Postgres: connections and sessions, and the conversion of the driver's errors into `MemoryIndexError`."""
