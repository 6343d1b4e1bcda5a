"""Replacing the embedding model without a moment without the dense leg, and only by one that passes a quality gate."""
