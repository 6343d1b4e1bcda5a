"""Proves on a cluster that the first user's memory API works with our library, even while pods are killed."""
