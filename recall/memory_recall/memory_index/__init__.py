"""The MemoryIndex object in Kubernetes, read with a user's own kubeconfig and shown as one screen."""
