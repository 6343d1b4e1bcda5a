"""Records rows whose embedding failed: how often, with which class of error, and when each row is tried again.

A failure belongs to a text: it counts only while the row's text has the recorded hash, so an edited row starts from
zero. A row whose text is refused, which no repetition mends, is quarantined at once. Times come from the database's
clock, because the clocks of workers may jump. The next attempt at a quarantined row is recorded as infinity.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from memory_recall.errors import EmbedderRejected, EmptyText, UnusableText
from memory_recall.indexing.queue_sql import PendingRow
from memory_recall.postgres.connection import Connection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.columns.keys import MemoryId
from memory_recall.schema.table import ACTIVE, NOTIFY_CHANNEL, MemoryTable, VectorColumn

MAX_DELAY_SECONDS = 60.0
_PAGE = 1_000  # failures that are compared with their rows in one statement
# Errors of a text that no repetition mends.
PERMANENT = (EmptyText.reason, EmbedderRejected.reason, UnusableText.reason)


@dataclass(frozen=True)
class RetryPolicy:
    """How many attempts a row has before it is quarantined, and the delay before the second attempt.

    Each further delay is four times as long as the one before, but at most a minute.
    """

    max_attempts: int = 5
    first_delay_seconds: float = 2.0


@dataclass(frozen=True)
class FailedRow:
    """A row whose embedding failed, without its text. `next_attempt` is None for a quarantined row."""

    id: MemoryId
    attempts: int
    error_class: str
    next_attempt: datetime | None


@dataclass(frozen=True)
class RecordedFailures:
    """How many rows are quarantined by what was recorded of their failures, and the rows of which nothing was."""

    quarantined: int
    unrecorded: list[PendingRow]


_RECORD = """
INSERT INTO {failures} AS f (id, text_hash, attempts, error_class, next_attempt)
SELECT v.id, v.hash, 1, v.error,
       CASE WHEN 1 >= $4 OR v.error = ANY($7::text[]) THEN 'infinity' ELSE now() + make_interval(secs => $5) END
  FROM unnest($1::{stored}[], $2::text[], $3::text[]) WITH ORDINALITY AS v(id, hash, error, place)
  JOIN {table} m ON {id} = v.id AND {shareable} AND {hashed} = v.hash
 ORDER BY v.place
   FOR SHARE OF m SKIP LOCKED
ON CONFLICT (id) DO UPDATE SET
    text_hash = excluded.text_hash,
    error_class = excluded.error_class,
    updated_at = now(),
    attempts = CASE WHEN f.text_hash = excluded.text_hash THEN f.attempts + 1 ELSE 1 END,
    next_attempt = CASE
        WHEN f.text_hash <> excluded.text_hash OR excluded.next_attempt = 'infinity' THEN excluded.next_attempt
        WHEN f.attempts + 1 >= $4 THEN 'infinity'
        ELSE now() + make_interval(secs => least($5 * power(4, f.attempts), $6)) END
RETURNING {shown} AS id, next_attempt = 'infinity' AS quarantined
"""


async def record_failures(
    connection: Connection,
    table: MemoryTable,
    failed: Sequence[tuple[PendingRow, str]],
    policy: RetryPolicy,
    column: VectorColumn = ACTIVE,
) -> RecordedFailures:
    """Record one more failure of each row, with the class of its error.

    Nothing is recorded of a row that was edited, marked sensitive or deleted since it was read, or that another session
    has locked. The rows are locked against changes, so that a later change sees the record and deletes it.
    """
    ordered, row = sorted(failed, key=lambda item: item[0].id), table.row("m")
    with translated("recording failures"):
        rows = await connection.fetch(
            _RECORD.format(
                failures=table.own(column.failures),
                table=table.qualified,
                id=row.id,
                shown=table.key.shown("f.id"),
                stored=table.key.stored,
                shareable=table.shareable("m"),
                hashed=f"{table.own('memory_index_text_hash')}({row.content})",
            ),
            [row.id for row, _ in ordered],
            [row.text_hash for row, _ in ordered],
            [error for _, error in ordered],
            policy.max_attempts,
            policy.first_delay_seconds,
            MAX_DELAY_SECONDS,
            PERMANENT,
        )
    recorded = {row["id"] for row in rows}
    return RecordedFailures(
        sum(1 for row in rows if row["quarantined"]), [row for row, _ in ordered if row.id not in recorded]
    )


async def forget_settled(
    connection: Connection, table: MemoryTable, column: VectorColumn = ACTIVE, after: MemoryId | None = None
) -> MemoryId | None:
    """Delete those of some failures whose row has a vector or another text by now, or may not have a vector any more.

    They are the failures of rows after the id `after`, or the first ones if it is None. Return the id after which the
    next page begins, or None after the last page. The table need not have the column. A failure that another session
    has locked is left.
    """
    failures, row = table.own(column.failures), table.row("m")
    wanted = table.pending("m", column) if table.vector_name(column) in table.catalog else table.shareable("m")
    following = "" if after is None else f"WHERE r.id > $1::{table.key.stored} "
    with translated("clearing settled failures"):
        last: MemoryId | None = await connection.fetchval(
            f"WITH page AS MATERIALIZED (SELECT r.id FROM {failures} r {following}ORDER BY r.id LIMIT {_PAGE}), "
            f"forgotten AS (DELETE FROM {failures} WHERE id IN (SELECT f.id FROM {failures} f "
            f"WHERE f.id IN (SELECT p.id FROM page p) AND NOT EXISTS ("
            f"SELECT FROM {table.qualified} m WHERE {row.id} = f.id AND {wanted} "
            f"AND {table.own('memory_index_text_hash')}({row.content}) = f.text_hash) FOR UPDATE OF f SKIP LOCKED)) "
            f"SELECT {table.key.shown('p.id')} FROM page p ORDER BY p.id DESC LIMIT 1",
            *(() if after is None else (after,)),
        )
    return last


async def listed(connection: Connection, table: MemoryTable, *, limit: int = 1000) -> list[FailedRow]:
    """List the failures of rows that are still pending with the same text, quarantined rows first."""
    row_id, content = table.row("m").id, table.row("m").content
    with translated("listing failures"):
        rows = await connection.fetch(
            f"SELECT {table.key.shown('f.id')} AS id, f.attempts, f.error_class, "
            "nullif(f.next_attempt, 'infinity') AS next_attempt "
            f"FROM {table.own('memory_embedding_failures')} f JOIN {table.qualified} m ON {row_id} = f.id "
            f"WHERE {table.pending('m')} AND {table.own('memory_index_text_hash')}({content}) = f.text_hash "
            "ORDER BY f.next_attempt DESC, f.id LIMIT $1",
            limit,
        )
    return [FailedRow(row["id"], row["attempts"], row["error_class"], row["next_attempt"]) for row in rows]


async def retry(connection: Connection, table: MemoryTable, ids: Sequence[MemoryId] | None) -> list[MemoryId]:
    """Delete the failures of the rows with these ids, or of all rows if `ids` is None, and notify the sync worker.

    Return the ids of the rows whose failures were deleted.
    """
    stored = table.key.stored
    with translated("releasing quarantined rows"):
        rows = await connection.fetch(
            f"DELETE FROM {table.own('memory_embedding_failures')} f "
            f"WHERE $1::{stored}[] IS NULL OR f.id = ANY($1::{stored}[]) RETURNING {table.key.shown('f.id')} AS id",
            list(ids) if ids is not None else None,
        )
        await connection.execute("SELECT pg_notify($1, $2)", NOTIFY_CHANNEL, table.name)
    return sorted(row["id"] for row in rows)
