"""Clients of the Kubernetes API, the database and the embedder, and the facts parsed from their answers."""
