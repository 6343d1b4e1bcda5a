"""Reads a MemoryIndex from Kubernetes with the user's own kubeconfig, and shows it on one screen."""
