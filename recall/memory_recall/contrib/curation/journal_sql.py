"""Applies proposals, undoes them, and lists what was done: the journal of a table of memories.

A run is one transaction, so a process that is killed has applied or undone all of it or nothing. Each applied proposal
is one row of the journal, and it is what recalls read. Where the memory API has its table of links beside the memories,
the API's own link `supersedes` is added with the row and removed when the row is undone. A memory itself is never
changed or deleted.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from memory_recall.contrib.curation.candidates_sql import unchanged
from memory_recall.contrib.curation.decisions import APPLIED
from memory_recall.contrib.curation.proposal_file import Proposal
from memory_recall.errors import InvalidInput
from memory_recall.postgres.connection import AnyConnection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.columns.keys import MemoryId
from memory_recall.schema.supersessions import ENDED, LINKS, SUPERSESSIONS, drop_ended_links, has_links
from memory_recall.schema.table import MemoryTable

_LOCK_SECONDS = 10
_LISTED = 1_000


@dataclass(frozen=True, slots=True)
class Applied:
    """The number of a run, how many memories it marked as superseded, and how many proposals it skipped.

    A proposal is skipped if one of its memories has changed or is being changed, is gone, or has become sensitive,
    deleted or superseded. `links` counts the links that were added for the memory API. `run` is None if nothing was
    applied.
    """

    run: int | None
    applied: int
    skipped: int
    links: int


@dataclass(frozen=True, slots=True)
class Step:
    """One row of the journal: the memory `id` was marked as superseded by another one in a run.

    `undone_at` is when the mark ended, because somebody undid it or because one of the texts was gone, or None.
    """

    step: int
    run: int
    action: str
    id: MemoryId
    superseded_by: MemoryId
    applied_at: datetime
    undone_at: datetime | None


async def apply_proposals(connection: AnyConnection, table: MemoryTable, proposals: Sequence[Proposal]) -> Applied:
    """Record in the journal, as one run, which memories are superseded according to the proposals.

    Proposals whose action is ADD or NOOP change nothing.

    Raises:
        InvalidInput: an id is of another type than those of the table.
        LockNotAvailable: another process is changing the journal.
    """
    wanted = [one for one in proposals if one.action in APPLIED]
    ids = [table.key.checked(one.id) for one in wanted]
    successors = [table.key.checked(one.superseded_by) for one in wanted]
    journal, links = table.own(SUPERSESSIONS), await has_links(connection, table)
    with translated("applying proposals"):
        async with connection.transaction():
            await _lock(connection, journal)
            if links:
                await drop_ended_links(connection, table)
            rows = await connection.fetch(
                _insert(table, links=links),
                ids,
                successors,
                [one.action.value for one in wanted],
                [one.text_hash for one in wanted],
                [one.successor_hash for one in wanted],
            )
            run = rows[0]["run"] if rows else None
            added = await connection.fetch(_link(table), run) if links and rows else []
    return Applied(run, len(rows), len(wanted) - len(rows), len(added))


def _insert(table: MemoryTable, *, links: bool) -> str:
    """Return the statement that inserts the proposals which are still true of the rows, and returns their run.

    It locks the rows until the end of the transaction, so that the triggers see the entry when a text changes then. A
    row that somebody is changing now is skipped.
    """
    journal, stored = table.own(SUPERSESSIONS), table.key.stored
    return f"""
INSERT INTO {journal} (run, id, superseded_by, action, text_hash, successor_hash)
SELECT (SELECT coalesce(max(run), 0) + 1 FROM {journal}), p.id, p.successor, p.action, p.text_hash, p.successor_hash
  FROM unnest($1::{stored}[], $2::{stored}[], $3::text[], $4::text[], $5::text[])
       AS p(id, successor, action, text_hash, successor_hash)
  {unchanged(table, links=links)}
 ORDER BY p.id
   FOR SHARE OF o, n SKIP LOCKED
    ON CONFLICT (id) WHERE undone_at IS NULL DO NOTHING
RETURNING run"""


def _link(table: MemoryTable) -> str:
    """Return the statement that adds the API's links of run $1, records their ids in the journal, and returns them."""
    journal, newer = table.own(SUPERSESSIONS), table.row("n")
    return f"""
WITH added AS (
  INSERT INTO {table.in_schema(LINKS)} (user_id, src_id, dst_id, link_type)
  SELECT {newer.column("user_id")}, s.superseded_by, s.id, 'supersedes'
    FROM {journal} s JOIN {table.qualified} n ON {newer.id} = s.superseded_by
   WHERE s.run = $1 ON CONFLICT DO NOTHING RETURNING id, src_id, dst_id
)
UPDATE {journal} s SET link_id = added.id FROM added
 WHERE s.run = $1 AND s.id = added.dst_id AND s.superseded_by = added.src_id RETURNING s.link_id"""


async def undo(connection: AnyConnection, table: MemoryTable, *, run: int | None, everything: bool) -> int:
    """Undo one run, the last one that has a mark left, or everything. Return how many memories stand as before again.

    The rows of the journal stay, and record when they were undone. Marks that have ended with their texts are not
    counted.

    Raises:
        InvalidInput: there is no such run, or it is undone already.
        LockNotAvailable: another process is changing the journal.
    """
    journal, links = table.own(SUPERSESSIONS), await has_links(connection, table)
    last = f"(SELECT max(run) FROM {journal} WHERE undone_at IS NULL)"
    of_run = "true" if everything else f"run = coalesce($1::bigint, {last})"
    with translated("undoing what was applied"):
        async with connection.transaction():
            await _lock(connection, journal)
            undone = await connection.fetch(
                f"UPDATE {journal} SET {ENDED} WHERE undone_at IS NULL AND {of_run} RETURNING step",
                *(() if everything else (run,)),
            )
            if links:
                await drop_ended_links(connection, table)
    if run is not None and not undone:
        raise InvalidInput(f"There is no run {run} that could be undone.", "memory curate log lists the runs.")
    return len(undone)


async def steps(connection: AnyConnection, table: MemoryTable) -> list[Step]:
    """Return the last thousand rows of the journal, newest first."""
    with translated("reading the journal"):
        rows = await connection.fetch(
            f"SELECT step, run, action, {table.key.shown('id')} AS id,"
            f" {table.key.shown('superseded_by')} AS superseded_by, applied_at, undone_at"
            f" FROM {table.own(SUPERSESSIONS)} ORDER BY step DESC LIMIT {_LISTED}"
        )
    return [Step(**row) for row in rows]


async def _lock(connection: AnyConnection, journal: str) -> None:
    """Wait for the lock of whoever applies or undoes proposals, which no recall and no edit waits for."""
    await connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_SECONDS}s'")
    await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", journal)
