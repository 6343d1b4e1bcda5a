"""The partitions of a table of memories: what the catalog says of them, which are refused, and their indexes' names.

Postgres itself copies row triggers, constraints and indexes of a partitioned table to every partition, also to one that
is added later. Only the building of an index over existing rows has to be done partition by partition (ADR 29).
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from memory_recall.schema.names import index_name, index_subject
from memory_recall.schema.requirements.faults import Fault

_KINDS = {"f": "a foreign table", "p": "partitioned itself"}

READ_PARTITIONS = """
(SELECT coalesce(jsonb_agg(jsonb_build_object('schema', n.nspname, 'name', p.relname, 'kind', p.relkind::text,
                                              'detaching', i.inhdetachpending) ORDER BY n.nspname, p.relname), '[]')
   FROM pg_inherits i JOIN pg_class p ON p.oid = i.inhrelid JOIN pg_namespace n ON n.oid = p.relnamespace
  WHERE i.inhparent = c.oid AND c.relkind = 'p')::text AS partitions,
(SELECT coalesce(jsonb_agg(a.attname ORDER BY k.place), '[]')
   FROM pg_partitioned_table t CROSS JOIN unnest(t.partattrs::int2[]) WITH ORDINALITY k(number, place)
   LEFT JOIN pg_attribute a ON a.attrelid = t.partrelid AND a.attnum = k.number
  WHERE t.partrelid = c.oid)::text AS partition_key
"""
"""A select list for the relation `c` of `pg_class`; an expression in the key is a NULL in its list of columns."""


@dataclass(frozen=True)
class TablePartition:
    """A partition. `kind` is its `relkind`; `detaching` says that a DETACH ... CONCURRENTLY was interrupted."""

    schema: str
    name: str
    kind: str = "r"
    detaching: bool = False

    @classmethod
    def all_from_json(cls, text: str) -> tuple[Self, ...]:
        """Parse the list that READ_PARTITIONS selects."""
        return tuple(cls(**found) for found in json.loads(text))

    def index_name(self, table: str, index: str) -> str:
        """Return the name of this partition's part of an index of the table `table`.

        The part of `idx_memories_embedding` in the partition `memories_ada` is `idx_memories_ada_embedding`.
        """
        return index_name(self.name, index_subject(table, index))


def partition_faults(table: str, partitions: Sequence[TablePartition]) -> list[Fault]:
    """Return a fault for each partition whose rows the rules would not reach, or that has no index of its own.

    It is a foreign table, partitioned itself, or half detached. `table` is the full name quoted for SQL.
    """
    faults = []
    for one in partitions:
        where = f"{one.schema}.{one.name}"
        if one.detaching:
            faults.append(
                Fault(
                    f"Partition {where} of {table} is half detached.",
                    f"Run ALTER TABLE {table} DETACH PARTITION {where} FINALIZE.",
                )
            )
        elif one.kind in _KINDS:
            faults.append(
                Fault(
                    f"Partition {where} of {table} is {_KINDS[one.kind]}.",
                    f"Detach it with ALTER TABLE {table} DETACH PARTITION {where}; each partition must be an ordinary "
                    "table.",
                )
            )
    return faults
