"""Where a table is published for logical replication, its updates must name the row that they change.

Postgres refuses every update of a table without a replica identity (the columns that name a row to a subscriber) while
a publication publishes its updates. By default the identity is the primary key.
"""
# ruff: noqa: S608  (statements are put together from our own expressions)

from collections.abc import Sequence

from memory_recall.schema.requirements.faults import Fault

_RELATIONS = "(SELECT c.oid UNION SELECT relid FROM pg_partition_tree(c.oid))"
_WITH_ANCESTORS = "(SELECT l.oid UNION SELECT relid FROM pg_partition_ancestors(l.oid))"
_HAS_IDENTITY = (
    "(l.relreplident = 'f' OR EXISTS (SELECT FROM pg_index x WHERE x.indrelid = l.oid AND x.indimmediate "
    "AND CASE l.relreplident WHEN 'd' THEN x.indisprimary WHEN 'i' THEN x.indisreplident END))"
)


def _publishes(entries: str = "true") -> str:
    """Return an SQL condition for whether the publication `p` has the relation `l`, itself or as a part of a table.

    `entries` is a condition for the entries `r` of single relations that count.
    """
    return (
        f"(p.puballtables OR EXISTS (SELECT FROM pg_publication_rel r WHERE r.prpubid = p.oid AND {entries} "
        f"AND r.prrelid IN {_WITH_ANCESTORS}) "
        "OR EXISTS (SELECT FROM pg_publication_namespace s JOIN pg_class f ON f.relnamespace = s.pnnspid "
        f"WHERE s.pnpubid = p.oid AND f.oid IN {_WITH_ANCESTORS}))"
    )


def read_unidentified() -> str:
    """Return a select list for the relation `c` of `pg_class`: what of it is published without a replica identity.

    These are full names, quoted for SQL, of the table or of its partitions.
    """
    return (
        "(SELECT coalesce(json_agg(format('%I.%I', n.nspname, l.relname) ORDER BY n.nspname, l.relname), '[]') "
        "FROM pg_class l JOIN pg_namespace n ON n.oid = l.relnamespace "
        f"WHERE l.oid IN {_RELATIONS} AND l.relkind = 'r' AND l.relpersistence = 'p' AND NOT {_HAS_IDENTITY} "
        f"AND EXISTS (SELECT FROM pg_publication p WHERE p.pubupdate AND {_publishes()}))::text AS unidentified"
    )


def read_publications() -> str:
    """Return an SQL expression for the relation `c` of `pg_class`: names of publications that list no columns of it."""
    return (
        "(SELECT coalesce(json_agg(p.pubname ORDER BY p.pubname), '[]') FROM pg_publication p WHERE EXISTS "
        f"(SELECT FROM pg_class l WHERE l.oid IN {_RELATIONS} AND l.relpersistence = 'p' "
        f"AND {_publishes('r.prattrs IS NULL')}))"
    )


def publication_faults(unidentified: Sequence[str]) -> list[Fault]:
    """Return a fault for each relation, a full name quoted for SQL, that is published without a replica identity."""
    return [
        Fault(
            f"{relation} has no replica identity, and a publication publishes its updates: Postgres refuses every "
            "update of it, and so every vector.",
            f"Add a primary key to it, or run ALTER TABLE {relation} REPLICA IDENTITY FULL;",
        )
        for relation in unidentified
    ]
