"""Container images: base images made without a registry, and the project's own from its Dockerfiles."""
