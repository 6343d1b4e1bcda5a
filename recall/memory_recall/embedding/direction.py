"""Whether a vector has a direction, and with it a cosine with other vectors."""

from collections.abc import Iterable

_ROUNDED_TO_ZERO = 2.0**-25  # half of the smallest number that a halfvec, as which vectors are stored, can hold


def has_direction(vector: Iterable[float]) -> bool:
    """Return whether a vector has another length than zero once it is stored; false for one of NaN alone, too."""
    return any(abs(number) > _ROUNDED_TO_ZERO for number in vector)
