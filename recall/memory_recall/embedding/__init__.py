"""Embedders: one client, the hosted provider, the address policy, and following the database's address."""
