"""Reads from the database which memories may belong together, and how rare their words and tags are.

Rows that are sensitive, deleted or already superseded are never read, neither as a newer nor as an older memory.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from collections.abc import Sequence
from datetime import datetime

from memory_recall.contrib.curation.features import Frequencies, Memory, Pair
from memory_recall.errors import InvalidInput, SchemaUnsupported
from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.columns.keys import MemoryId
from memory_recall.schema.columns.moments import moment, moment_value
from memory_recall.schema.columns.owners import owned_by, owner_named
from memory_recall.schema.requirements.used_columns import require_searchable
from memory_recall.schema.rules.expected import TEXT_HASH
from memory_recall.schema.supersessions import LINKS, SUPERSESSIONS
from memory_recall.schema.table import ACTIVE, ORDINARY_COLLATION, MemoryTable, quoted

MAX_NEWER_ROWS = 50_000
MAX_CHARACTERS = 20_000  # of a memory that is compared; a vector knows the beginning of such a text alone
NEIGHBOURS = 15  # older memories that each memory is compared with
LEAST_COSINE = 0.2
_WIDE_SCAN = (
    "SELECT set_config('hnsw.ef_search', '100', true), set_config('hnsw.iterative_scan', 'relaxed_order', true)"
)


def require_curatable(table: MemoryTable) -> None:
    """Refuse a table without dates, vectors or search vectors.

    Raises:
        SchemaUnsupported: a column is missing.
    """
    require_searchable(table)
    if "created_at" not in table.columns:
        raise SchemaUnsupported(
            f"Table {table.schema}.{table.name} has no column created_at, by which the newer memory is known.",
            "Curate another table; or remove what was added, the vectors too, with memory migrate --to base --yes, and "
            "migrate anew with a column of that time, which MEMORY_COLUMNS names for created_at.",
        )
    missing = [] if "search_vector" in table.columns else ["search_vector"]
    missing += [table.vector_name(ACTIVE)] if table.vector_name(ACTIVE) not in table.catalog else []
    if missing:
        raise SchemaUnsupported(
            f"Table {table.schema}.{table.name} has no column {', '.join(missing)}, by which memories are compared.",
            "Run memory migrate and memory backfill.",
        )


def current(table: MemoryTable, row: str, *, links: bool) -> str:
    """Return the SQL condition for a row that is neither sensitive nor deleted nor superseded.

    A link that was added with a mark counts no longer once the mark has ended, although it may be there still.
    """
    journal, row_id = table.own(SUPERSESSIONS), table.row(row).id
    linked = (
        f" AND NOT EXISTS (SELECT FROM {table.in_schema(LINKS)} l WHERE l.dst_id = {row_id}"
        f" AND l.link_type = 'supersedes' AND NOT EXISTS (SELECT FROM {journal} e WHERE e.link_id = l.id"
        " AND e.undone_at IS NOT NULL))"
        if links
        else ""
    )
    return (
        f"{table.shareable(row)} AND NOT EXISTS (SELECT FROM {journal} s WHERE s.id = {row_id}"
        f" AND s.undone_at IS NULL){linked}"
    )


def unchanged(table: MemoryTable, *, links: bool) -> str:
    """Return the SQL joins of rows `p` with their memories `o` and `n`, for those that are still what was compared.

    `p` has the ids `id` and `successor` of the older and the newer memory, and their `text_hash` and `successor_hash`.
    Both memories must be current, have these texts, belong to one owner, and be in this order.
    """
    hashed, older, newer = table.own(TEXT_HASH), table.row("o"), table.row("n")
    return f"""JOIN {table.qualified} o ON {older.id} = p.id AND {current(table, "o", links=links)}
                          AND {hashed}({older.content}) = p.text_hash
  JOIN {table.qualified} n ON {newer.id} = p.successor AND {current(table, "n", links=links)}
                          AND {hashed}({newer.content}) = p.successor_hash
                          AND {_precedes(table, "o", "n")}{_same_owner(table, "o", "n")}"""


def _precedes(table: MemoryTable, older: str, newer: str) -> str:
    """Return the condition that the row `older` was made before the row `newer`."""
    before, after = table.row(older), table.row(newer)
    return f"({before.column('created_at')}, {before.id}) < ({after.column('created_at')}, {after.id})"


def _same_owner(table: MemoryTable, one: str, other: str) -> str:
    """Return the condition, after an AND, that two rows belong to one owner; it is empty where nobody owns a row."""
    if "user_id" not in table.columns:
        return ""
    return f" AND {table.row(one).column('user_id')} = {table.row(other).column('user_id')}"


def _searched(table: MemoryTable, row: str, *, links: bool) -> str:
    """Return the condition of `_dated` for a row whose text is not too long."""
    return f"{_dated(table, row, links=links)} AND NOT {_too_long(table, row)}"


def _dated(table: MemoryTable, row: str, *, links: bool) -> str:
    """Return the condition of `current` for a row that also has a vector and a date, of the owner $1 if it is given."""
    return (
        f"{current(table, row, links=links)} AND {row}.{table.vector_name(ACTIVE)} IS NOT NULL"
        f" AND {moment(table, 'created_at', row)} IS NOT NULL{_owned(table, row)}"
    )


def _too_long(table: MemoryTable, row: str) -> str:
    """Return the condition for a row whose text is not compared. Of a short one only the length in bytes is read."""
    text = table.row(row).content
    return f"(octet_length({text}) > {MAX_CHARACTERS} AND char_length({text}) > {MAX_CHARACTERS})"


async def count_too_long(connection: AnyConnection, table: MemoryTable, *, user: str | None, links: bool) -> int:
    """Return how many memories are compared with none, because their texts are too long.

    With `user` None, the memories of all owners are counted.

    Raises:
        InvalidInput: the table has no such user.
    """
    user = user if user is None else owner_named(table, user)
    condition = f"{_dated(table, 'm', links=links)} AND {_too_long(table, 'm')}"
    with translated("counting memories that are too long"):
        count: int = await connection.fetchval(f"SELECT count(*) FROM {table.qualified} m WHERE {condition}", user)
    return count


def _owned(table: MemoryTable, row: str) -> str:
    """Return the condition, after an AND, for a row of the owner $1, or of any owner if $1 is NULL."""
    named = f" OR {owned_by(table, row, '$1')}" if "user_id" in table.columns else ""
    return f" AND ($1::text IS NULL{named})"


async def read_pairs(
    connection: AnyConnection, table: MemoryTable, *, user: str | None, since: datetime | None, links: bool
) -> list[Pair]:
    """Return each current memory since `since` with the older ones of its owner that are nearest to it.

    With `user` None, the memories of all owners are read.

    Raises:
        InvalidInput: there are too many memories for one run, or the table has no such user.
    """
    user = user if user is None else owner_named(table, user)
    key, since_then = table.key, moment_value(table, "created_at", "$2::timestamptz")
    made = table.row("n").column("created_at")
    newer = f"{_searched(table, 'n', links=links)} AND ($2::timestamptz IS NULL OR {made} >= {since_then})"
    # The settings of the index scan end with the transaction, because a pooler may give the session to somebody else.
    with translated("looking for memories that belong together"):
        async with connection.transaction(readonly=True):
            rows = await connection.fetchval(f"SELECT count(*) FROM {table.qualified} n WHERE {newer}", user, since)
            if rows > MAX_NEWER_ROWS:
                raise InvalidInput(
                    f"{rows:,} memories are to be compared, and at most {MAX_NEWER_ROWS:,} can be in one run.",
                    "Name a part of them: --since, or --user.",
                )
            await connection.execute(_WIDE_SCAN)
            found = await connection.fetch(
                f"SELECT {key.shown(table.row('n').id)} AS newer, {key.shown('o.id')} AS older, o.cosine"
                f" FROM {table.qualified} n,"
                f" LATERAL ({_nearest_older(table, links=links)}) o WHERE {newer} AND o.cosine >= $3",
                user,
                since,
                LEAST_COSINE,
            )
            ids = sorted({row[name] for row in found for name in ("newer", "older")})
            memories = await _read_memories(connection, table, ids, user=user, links=links)
    return [
        Pair(memories[row["older"]], memories[row["newer"]], row["cosine"])
        for row in found
        if row["older"] in memories and row["newer"] in memories
    ]


def _nearest_older(table: MemoryTable, *, links: bool) -> str:
    """Return the SELECT of the memories that are nearest to the row `n` among the older ones of its owner."""
    operator = f"OPERATOR({quoted(table.vector_schema or 'public')}.<=>)"
    vector = table.vector_name(ACTIVE)
    distance = f"m.{vector} {operator} n.{vector}"
    # The cosine of a vector of length zero is NaN, which Postgres takes for more than any number.
    return (
        f"SELECT {table.row('m').id} AS id, nullif(1 - ({distance}), 'NaN')::float8 AS cosine FROM {table.qualified} m"
        f" WHERE {_searched(table, 'm', links=links)}{_same_owner(table, 'm', 'n')} AND {_precedes(table, 'm', 'n')}"
        f" ORDER BY {distance} LIMIT {NEIGHBOURS}"
    )


async def _read_memories(
    connection: AnyConnection, table: MemoryTable, ids: list[MemoryId], *, user: str | None, links: bool
) -> dict[MemoryId, Memory]:
    """Return those of the user's memories that are current still; some may have become sensitive since they were found.

    With `user` None, they may be any owner's.
    """
    row = table.row("m")
    rows = await connection.fetch(
        f"SELECT {table.key.shown(row.id)} AS id, {row.content} AS content, {_tags(table)} AS tags,"
        f" tsvector_to_array({row.search_vector}) AS terms, {moment(table, 'created_at')} AS created_at,"
        f" {table.own(TEXT_HASH)}({row.content}) AS text_hash FROM {table.qualified} m"
        f" WHERE {row.id} = ANY($2::{table.key.stored}[]) AND {_searched(table, 'm', links=links)}",
        user,
        ids,
    )
    return {
        row["id"]: Memory(
            row["id"],
            row["content"],
            frozenset(tag.strip().lower() for tag in row["tags"].split(",") if tag.strip()),
            frozenset(row["terms"] or ()),
            row["created_at"],
            row["text_hash"],
        )
        for row in rows
    }


async def read_unchanged(
    connection: AnyConnection, table: MemoryTable, pairs: Sequence[Pair], *, links: bool
) -> set[tuple[MemoryId, MemoryId]]:
    """Return the ids (older, newer) of those pairs whose memories are current still, with the texts that were read."""
    key, stored = table.key, table.key.stored
    with translated("looking memories up again"):
        rows = await connection.fetch(
            f"SELECT {key.shown('p.id')} AS id, {key.shown('p.successor')} AS successor"
            f" FROM unnest($1::{stored}[], $2::{stored}[], $3::text[], $4::text[])"
            f" AS p(id, successor, text_hash, successor_hash) {unchanged(table, links=links)}",
            [pair.older.id for pair in pairs],
            [pair.newer.id for pair in pairs],
            [pair.older.text_hash for pair in pairs],
            [pair.newer.text_hash for pair in pairs],
        )
    return {(row["id"], row["successor"]) for row in rows}


async def read_frequencies(
    connection: AnyConnection, table: MemoryTable, *, user: str | None, links: bool
) -> Frequencies:
    """Return how many of the current memories have each term and each tag that more than one of them has."""
    rows = f"{table.qualified} m WHERE {_searched(table, 'm', links=links)}"
    terms = f"SELECT unnest(tsvector_to_array({table.row('m').search_vector})) AS name FROM {rows}"
    tags = f"SELECT lower(btrim(unnest(string_to_array({_tags(table)}, ',')))) AS name FROM {rows}"
    with translated("counting words and tags"):
        user = user if user is None else owner_named(table, user)
        count = await connection.fetchval(f"SELECT count(*) FROM {rows}", user)
        counted = [
            await connection.fetch(
                f"SELECT name, count(*) AS rows FROM ({names}) each GROUP BY name HAVING count(*) > 1", user
            )
            for names in (terms, tags)
        ]
    of_terms, of_tags = ({row["name"]: row["rows"] for row in found} for found in counted)
    return Frequencies(count, of_terms, of_tags)


def _tags(table: MemoryTable) -> str:
    """Return SQL for the tags of the row `m`, in a collation by which they can be taken apart."""
    tags = f"coalesce({table.row('m').column('tags')}, '')" if "tags" in table.columns else "''"
    return f"{tags} COLLATE {ORDINARY_COLLATION}"
