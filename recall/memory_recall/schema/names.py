"""The names of indexes and of our own relations, made from a table's name and never longer than Postgres keeps them.

Postgres cuts an identifier at 63 bytes without an error, so two long names that differ at the end alone become one.
Where a name would be longer, a hash stands in place of the table's name.
"""

import hashlib

LONGEST_NAME = 63  # bytes
_LONGEST_IN_SUFFIX = 29  # bytes; 28 of `memory_index_alembic_version`, 2 of `__` and 4 of its key's `_pkc` make 63
_DIGEST = 24  # hexadecimal digits in place of the table's name in an index's name


def own_suffix(table: str) -> str:
    """Return the suffix that makes the names of our relations and functions unique to a table.

    The names for the first table of a schema have no suffix. A table's name of more than 29 bytes is replaced by its
    hash.
    """
    if len(table.encode()) <= _LONGEST_IN_SUFFIX:
        return f"__{table}"
    return f"__{hashlib.sha256(table.encode()).hexdigest()[:_LONGEST_IN_SUFFIX]}"


def index_name(relation: str, what: str) -> str:
    """Return the name of an index of a table or a partition, such as `idx_memories_embedding` for `embedding`.

    A name of more than 63 bytes has a hash in place of the relation's name. `what` has at most 34 bytes.
    """
    name = f"idx_{relation}_{what}"
    return name if len(name.encode()) <= LONGEST_NAME else f"idx_{_digest(relation)}_{what}"


def index_subject(relation: str, index: str) -> str:
    """Return the argument `what` with which `index_name` makes the name `index`.

    Raises:
        ValueError: `index_name` makes no such name for the relation.
    """
    for prefix in (f"idx_{relation}_", f"idx_{_digest(relation)}_"):
        if index.startswith(prefix):
            return index.removeprefix(prefix)
    raise ValueError(index)


def _digest(relation: str) -> str:
    return hashlib.sha256(relation.encode()).hexdigest()[:_DIGEST]
