"""A fault of a table that a person has to remedy."""

from collections.abc import Sequence
from dataclasses import dataclass

from memory_recall.errors import SchemaUnsupported


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a table, in a sentence, and what a person does about it.

    `of_names` says that it is also remedied where another column is named for the same purpose.
    """

    message: str
    remedy: str
    of_names: bool = False


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
    said = [fault.remedy for fault in faults]
    if any(fault.of_names for fault in faults):
        said.append(
            "Or name the columns that the table has for these purposes: MEMORY_COLUMNS, in a cluster "
            "spec.database.columns; `memory adopt` proposes them."
        )
    return " ".join(said)
