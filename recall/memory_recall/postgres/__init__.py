"""Postgres: connections, and the driver's errors converted into ours."""
