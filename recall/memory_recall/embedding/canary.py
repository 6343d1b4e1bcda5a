"""Tells by a few vectors whether a server still serves the model that it served before, if it names no file.

The canary of a model is made of the vectors of three fixed texts, two documents and a query. It is recorded in place of
the digest of the model's file, and compared by cosine instead of by equality, because no two processors compute the
very same numbers. Measured on 2026-11-28: two engines with the same weights of multilingual-e5-small have cosines of at
least .9998, weights of 16, 8 and 6 bits of at least .9996, the same model without its prefixes of .985 to .990,
bge-small without that of queries of .977, mean against CLS pooling of .73 to .98, and two models of .00 to .24. Weights
of 4 bits lie on either side of the limit, as the model takes them (ADR 40).

Of each vector the first 64 numbers are kept, each in one byte, which is enough to tell these apart.
"""

import base64
import binascii
import math
from collections.abc import Sequence
from dataclasses import dataclass

CANARY_DOCUMENTS = (
    "The ferry to the island leaves at half past seven and takes forty minutes.",
    "def area(radius: float) -> float: return math.pi * radius**2",
)
CANARY_QUERY = "When does the first boat go?"
CANARY_PREFIX = "canary:"
LEAST_COSINE = 0.998
_NUMBERS = 64


@dataclass(frozen=True, slots=True)
class Canary:
    """The beginnings of vectors of the fixed texts, each scaled so that its largest number is 127."""

    vectors: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, vectors: Sequence[Sequence[float]]) -> "Canary":
        """Make a canary of the vectors of the documents and of the query, in this order."""
        return cls(tuple(_scaled(vector[:_NUMBERS]) for vector in vectors))

    @classmethod
    def parse(cls, digest: str) -> "Canary | None":
        """Read a canary from what is recorded in place of a digest; None if it is none."""
        if not digest.startswith(CANARY_PREFIX):
            return None
        try:
            parts = [base64.b64decode(part, validate=True) for part in digest.removeprefix(CANARY_PREFIX).split(".")]
        except (binascii.Error, ValueError):
            return None
        return cls(tuple(tuple(byte - 128 for byte in part) for part in parts))

    def __str__(self) -> str:
        parts = (base64.b64encode(bytes(number + 128 for number in vector)).decode() for vector in self.vectors)
        return CANARY_PREFIX + ".".join(parts)

    def matches(self, other: "Canary") -> bool:
        """Return whether both are canaries of one model: each vector has nearly the direction of its counterpart."""
        if [len(vector) for vector in self.vectors] != [len(vector) for vector in other.vectors]:
            return False
        return all(_cosine(*pair) >= LEAST_COSINE for pair in zip(self.vectors, other.vectors, strict=True))


def may_be_same_file(recorded: str | None, given: str | None) -> bool:
    """Return False if two models certainly have different files, by their digests or canaries.

    Nothing is known if one of them is missing, or if only one is a canary.
    """
    return _same_file(recorded, given) is not False


def is_same_file(recorded: str | None, given: str | None) -> bool:
    """Return True if two models certainly have one file, so that vectors of the one may be used for the other."""
    return _same_file(recorded, given) is True


def are_of_different_kinds(recorded: str | None, given: str | None) -> bool:
    """Return whether one is the digest of a file and the other a canary, so that they cannot be compared."""
    return recorded is not None and given is not None and _same_file(recorded, given) is None


def _same_file(recorded: str | None, given: str | None) -> bool | None:
    if recorded is None or given is None:
        return None
    one, other = Canary.parse(recorded), Canary.parse(given)
    if one is not None and other is not None:
        return one.matches(other)
    return recorded == given if one is None and other is None else None


def _scaled(numbers: Sequence[float]) -> tuple[int, ...]:
    largest = max(map(abs, numbers), default=0.0) or 1.0
    return tuple(round(127 * number / largest) for number in numbers)


def _cosine(one: Sequence[int], other: Sequence[int]) -> float:
    lengths = math.hypot(*one) * math.hypot(*other)
    return sum(a * b for a, b in zip(one, other, strict=True)) / lengths if lengths else 0.0
