"""The Kubernetes operator that reconciles MemoryIndex objects."""
