"""Runs MemoryIndex objects under admission policies, beside copies of a server, and with TLS that is verified."""
