"""Reads the facts about the server and the counts of rows for the status of a table of memories.

The operator reads the status every half minute, from databases of any size. Most counts come from two small partial
indexes, over pending rows and over sensitive or deleted rows. Only the total needs a scan, for which the index of the
primary key suffices. Where that takes too long, as in a large table that is not in memory, the total is estimated. No
statement names the column of texts, so a role without the right to read texts can read the whole status.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

import time
from typing import Any

from memory_recall.errors import EmptyText, RowRefused
from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.postgres.session_sql import row_within
from memory_recall.schema.columns.text_search import READ_FOLDS_CASE
from memory_recall.schema.table import MemoryTable
from memory_recall.schema.truncated import count_truncated

_NOT_EMBEDDED = ("pending", "sensitive", "quarantined", "blank")  # the states of rows without a vector

_SERVER = f"""
SELECT split_part(current_setting('server_version'), ' ', 1) AS server_version, pg_is_in_recovery() AS in_recovery,
       host(inet_server_addr()) AS server_address,
       pg_get_userbyid(d.datdba) AS database_owner, {READ_FOLDS_CASE} AS folds_case,
       (SELECT extversion FROM pg_extension WHERE extname = 'vector') AS extension_version,
       (SELECT default_version FROM pg_available_extensions WHERE name = 'vector') AS extension_available
  FROM pg_database d WHERE d.datname = current_database()
"""


async def read_server(connection: AnyConnection) -> dict[str, Any]:
    """Read the server's version and address, whether it is a replica, pgvector's versions, and the database's owner.

    `folds_case` says whether its locale knows the small letters of every script.
    """
    return await _row(connection, "looking at the server", _SERVER)


async def count_rows(
    connection: AnyConnection, table: MemoryTable, *, with_queue: bool, seconds: float
) -> dict[str, Any] | None:
    """Count the rows that are not deleted, as `RowCounts` has them; return None if that takes longer than `seconds`.

    If all but the total can be counted in time, the total is estimated. `with_queue` False says that the migrations
    have not made their tables yet; then every row that is not sensitive counts as pending.
    """
    if with_queue:
        return await _count_by_state(connection, table, seconds)
    with translated("counting rows"):
        row = await row_within(connection, seconds, _counts_without_queue(table))
    return dict(row) if row else None


async def _count_by_state(connection: AnyConnection, table: MemoryTable, seconds: float) -> dict[str, Any] | None:
    deadline = time.monotonic() + seconds
    with translated("counting rows"):
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            found = await row_within(connection, seconds, _counts_by_indexes(table))
            if found is None:
                return None
            left = deadline - time.monotonic()
            counted = await row_within(connection, left, f"SELECT count(*) AS rows FROM {table.qualified}")
    counts = dict(found)
    rows: int = counted["rows"] if counted else await estimate_rows(connection, table)
    not_embedded = sum(counts[state] for state in _NOT_EMBEDDED)
    embedded = max(rows - counts.pop("deleted") - not_embedded, 0)  # an estimate may be less than the other counts
    return {"total": embedded + not_embedded, "embedded": embedded, **counts, "estimated": counted is None}


async def estimate_rows(connection: AnyConnection, table: MemoryTable) -> int:
    """Return about how many rows there are, deleted ones included, without reading them; at least 1."""
    with translated("estimating rows"):
        rows: float = await connection.fetchval(f"SELECT {table.estimated_rows()}")
    return max(round(rows), 1)


async def seconds_since_wanted(connection: AnyConnection, table: MemoryTable) -> float | None:
    """Return how many seconds ago a recall last wanted an embedder that did not answer; None if none is recorded."""
    with translated("reading when an embedder was wanted"):
        seconds: float | None = await connection.fetchval(
            f"SELECT extract(epoch FROM now() - wanted_at)::float8 FROM {table.own('memory_index_state')}"
        )
    return seconds


def _counts_by_indexes(table: MemoryTable) -> str:
    withheld, present = f"NOT {table.shareable()}", table.present()
    return f"""
        WITH given_up AS MATERIALIZED (
          SELECT count(*) FILTER (WHERE f.error_class <> '{EmptyText.reason}') AS quarantined,
                 count(*) FILTER (WHERE f.error_class = '{EmptyText.reason}') AS blank
            FROM {table.own("memory_embedding_failures")} f JOIN {table.qualified} m ON {table.row("m").id} = f.id
           WHERE f.next_attempt = 'infinity' AND {table.pending("m")}
        ), counted AS MATERIALIZED (
          SELECT (SELECT count(*) FROM {table.qualified} WHERE {withheld} AND NOT {present}) AS deleted,
                 (SELECT count(*) FROM {table.qualified} WHERE {withheld} AND {present}) AS sensitive,
                 (SELECT count(*) FROM {table.qualified} WHERE {table.pending()}) AS unembedded
        )
        SELECT deleted, unembedded - quarantined - blank AS pending, sensitive, quarantined, blank,
               {_without_words(table)} AS without_words, {count_truncated(table)} AS truncated
          FROM counted, given_up
    """


def _without_words(table: MemoryTable) -> str:
    if not table.names.has_own_search_column:
        return "0"
    m = table.row("m")
    refused = (
        f"SELECT FROM {table.own('memory_embedding_failures')} f "
        f"WHERE f.id = {m.id} AND f.next_attempt = 'infinity' AND f.error_class = '{RowRefused.reason}'"
    )
    return f"(SELECT count(*) FROM {table.qualified} m WHERE {m.search_vector} IS NULL AND NOT EXISTS ({refused}))"


def _counts_without_queue(table: MemoryTable) -> str:
    return f"""
        SELECT count(*) AS total, count(*) FILTER (WHERE NOT {table.sensitive()}) AS pending,
               count(*) FILTER (WHERE {table.sensitive()}) AS sensitive
          FROM {table.qualified} WHERE {table.present()}
    """


async def _row(connection: AnyConnection, activity: str, statement: str) -> dict[str, Any]:
    with translated(activity):
        row = await connection.fetchrow(statement)
    assert row is not None  # noqa: S101  (either is a SELECT without FROM, or an aggregate: it yields one row)
    return dict(row)
