"""Container images: base images made without a registry, and this project's images built from its Dockerfiles."""
