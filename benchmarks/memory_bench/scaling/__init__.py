"""A day of load against the operator's own decision on the number of embedder pods, with a model of their queue."""
