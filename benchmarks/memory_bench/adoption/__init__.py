"""The first user's memory API with our library in it: built, used and disturbed on a cluster, its own tests run."""
