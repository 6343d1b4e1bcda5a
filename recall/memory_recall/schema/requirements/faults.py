"""A fault of a table that a person has to remedy."""

from collections.abc import Sequence
from dataclasses import dataclass

from memory_recall.errors import SchemaUnsupported


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a table, in a sentence, and what a person does about it."""

    message: str
    remedy: str


def require_none(faults: Sequence[Fault]) -> None:
    """Refuse a table that has faults, and name all of them.

    Raises:
        SchemaUnsupported: there is a fault.
    """
    if faults:
        raise SchemaUnsupported(messages(faults), remedies(faults))


def messages(faults: Sequence[Fault]) -> str:
    """Return what is wrong, as one text."""
    return " ".join(fault.message for fault in faults)


def remedies(faults: Sequence[Fault]) -> str:
    """Return what to do, as one text."""
    return " ".join(fault.remedy for fault in faults)
