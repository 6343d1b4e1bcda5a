"""Publishes a release to a registry, with proof of where it came from, and checks that it can be built again."""
