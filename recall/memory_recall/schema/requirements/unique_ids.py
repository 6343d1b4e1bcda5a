"""The id of a row must be unique by itself, and the database must see to it.

A worker writes a vector back by the id of its row, the journals and the concept graph know a memory by its id, and
recalls look a found row up by it. A key of tenant and id does not suffice. The key of a partitioned table cannot be the
id alone, so there `memory migrate` compares the ids themselves, and an index that begins with the id must exist.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from memory_recall.schema.ddl import literal
from memory_recall.schema.requirements.faults import Fault
from memory_recall.schema.table import MemoryTable


def read_id_indexes(table: MemoryTable) -> str:
    """Return a select list for the relation `c` of `pg_class`: its unique indexes over the ids alone."""
    return (
        "(SELECT coalesce(json_agg(json_build_object('name', format('%I.%I', n.nspname, i.relname), "
        "'deferrable', NOT x.indimmediate, 'partial', x.indpred IS NOT NULL, "
        "'invalid', NOT (x.indisvalid AND x.indisready)) ORDER BY i.relname), '[]') "
        f"{_of_id(table, 'c.oid')})::text AS id_indexes"
    )


def _of_id(table: MemoryTable, relation: str) -> str:
    (key,) = table.names.of("id")
    return (
        "FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_namespace n ON n.oid = i.relnamespace "
        f"JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attname = {literal(key.column)} "
        f"WHERE x.indrelid = {relation} AND x.indisunique AND x.indnkeyatts = 1 AND x.indkey[0] = a.attnum"
    )


@dataclass(frozen=True, slots=True)
class IdIndex:
    """A unique index over the column of ids alone, with its full name quoted for SQL.

    If it is deferrable, two rows may have one id until a transaction ends. If it is partial, two rows may have one id
    of which it does not cover both. If it is invalid, its building was not finished.
    """

    name: str
    deferrable: bool = False
    partial: bool = False
    invalid: bool = False

    @classmethod
    def all_from_json(cls, text: str) -> tuple[Self, ...]:
        """Parse the list that `read_id_indexes` selects."""
        return tuple(cls(**found) for found in json.loads(text))

    @property
    def shortcoming(self) -> str:
        """Why the index does not keep ids unique, or "" if it does."""
        kinds = (("invalid", self.invalid), ("partial", self.partial), ("deferrable", self.deferrable))
        return " and ".join(kind for kind, holds in kinds if holds)


def id_faults(table: str, indexes: Sequence[IdIndex], key: str = "id") -> list[Fault]:
    """Return the fault of a table in which nothing keeps each id unique.

    `table` is its full name and `key` the name of its column of ids, both quoted for SQL where it is needed. A
    partitioned table has no such fault, as it cannot have such an index.
    """
    if any(not index.shortcoming for index in indexes):
        return []
    found = "".join(f" Its index {index.name} is {index.shortcoming}." for index in indexes)
    drop = "".join(f"DROP INDEX CONCURRENTLY {index.name}; " for index in indexes if index.invalid)
    return [
        Fault(
            f"No index makes the {key} of each row of {table} unique by itself.{found}",
            f"Run {drop}CREATE UNIQUE INDEX CONCURRENTLY ON {table} ({key}); "
            "if rows share an id, first give each an id of its own.",
        )
    ]


def has_unique_ids(table: MemoryTable, relation: str) -> str:
    """Return an SQL condition for whether an index keeps ids unique now; `relation` is SQL for the table's OID."""
    found = _of_id(table, relation)
    return f"EXISTS (SELECT {found} AND x.indimmediate AND x.indpred IS NULL AND x.indisvalid AND x.indisready)"
