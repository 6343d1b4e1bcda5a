"""Build the manifests of all Kubernetes objects that the operator owns; pure functions."""
