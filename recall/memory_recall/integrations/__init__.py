"""Integrations with other software: FastAPI, Prometheus, SQLite."""
