"""Vectors of the tests' tiny model."""

DIMENSIONS = 8


def axis(*weights: float) -> list[float]:
    """A vector with these first components."""
    return [*weights, *([0.0] * (DIMENSIONS - len(weights)))]
