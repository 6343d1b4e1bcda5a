"""The record of the texts whose end the model has not read: `memory_truncated_texts`, one row for each text and model.

A worker records a text in the statement that stores its vector, so whoever changes the row after that sees the record.
Triggers delete it when the text changes, or its row becomes sensitive or is deleted. A sweep does so where no trigger
has seen it, and deletes the records of models that the table no longer has vectors of.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from dataclasses import dataclass

from memory_recall.postgres.connection import AnyConnection, Connection
from memory_recall.postgres.driver_errors import translated
from memory_recall.schema.columns.keys import MemoryId
from memory_recall.schema.ddl import literal
from memory_recall.schema.table import ACTIVE, MemoryTable

TRUNCATED = "memory_truncated_texts"
_PAGE = 1_000  # records that one statement of a sweep looks up

TruncatedRecord = tuple[MemoryId, int]
"""What a record is known by: the row's id and the model's."""


@dataclass(frozen=True)
class TruncatedTexts:
    """The ids of rows whose text was longer than the active model's window, in their order; `more` are not listed."""

    ids: list[MemoryId]
    more: int


def forget_truncated(table: MemoryTable, chosen: str) -> str:
    """Return PL/pgSQL that deletes the chosen records `t`.

    A record that another session has locked is left to the next sweep. Nothing is done without the table of records,
    because edits of memories must not fail.
    """
    return f"IF to_regclass({literal(table.own(TRUNCATED))}) IS NOT NULL THEN {_delete(table, chosen)}; END IF;"


def record_truncated(table: MemoryTable, stored: str, model: str) -> str:
    """Return CTEs that record which of the rows `stored`, a CTE, have a text whose end the model has not read.

    `stored` has the columns `id` and `truncated`, which says so. `model` is SQL for the model's id.
    """
    records = table.own(TRUNCATED)
    return (
        f"recorded AS (INSERT INTO {records} (id, model) SELECT s.id, {model} FROM {stored} s WHERE s.truncated "
        f"ON CONFLICT DO NOTHING), "
        f"forgotten AS (DELETE FROM {records} t USING {stored} s "
        f"WHERE t.id = s.id AND t.model = {model} AND NOT s.truncated)"
    )


def count_truncated(table: MemoryTable) -> str:
    """Return an SQL expression for how many texts are recorded whose end the active model has not read."""
    return (
        f"(SELECT count(*) FROM {table.own(TRUNCATED)} t "
        f"JOIN {table.own('memory_index_state')} s ON s.active_model = t.model)"
    )


async def sweep_truncated(
    connection: Connection, table: MemoryTable, after: TruncatedRecord | None = None
) -> TruncatedRecord | None:
    """Delete those of some records whose row is gone, sensitive or marked deleted, or whose model has no column.

    They are the records after the record `after`, or the first ones if it is None. Return the record after which the
    next page begins, or None after the last page. While there is a standby column, the records of every model stay:
    after a flip it holds vectors of the previous model, which the state no longer names, and a rollback uses them. A
    record that another session has locked is left.
    """
    of_a_column = ""
    if table.standby_dimensions is None:
        of_a_column = f"JOIN {table.own('memory_index_state')} s ON t.model IN (s.active_model, s.next_model) "
    gone = (
        "(t.id, t.model) IN (SELECT p.id, p.model FROM page p) AND NOT EXISTS "
        f"(SELECT FROM {table.qualified} m {of_a_column}WHERE {table.row('m').id} = t.id AND {table.shareable('m')})"
    )
    following = "" if after is None else f"WHERE (r.id, r.model) > ($1::{table.key.stored}, $2::integer) "
    with translated("sweeping the records of truncated texts"):
        last = await connection.fetchrow(
            f"WITH page AS MATERIALIZED (SELECT r.id, r.model FROM {table.own(TRUNCATED)} r {following}"
            f"ORDER BY r.id, r.model LIMIT {_PAGE}), swept AS ({_delete(table, gone)}) "
            f"SELECT {table.key.shown('p.id')} AS id, p.model FROM page p ORDER BY p.id DESC, p.model DESC LIMIT 1",
            *(after or ()),
        )
    return (last["id"], last["model"]) if last else None


async def list_truncated(connection: AnyConnection, table: MemoryTable, *, limit: int) -> TruncatedTexts:
    """List at most `limit` rows whose vector is that of a beginning of their text."""
    with translated("listing truncated texts"):
        rows = await connection.fetch(
            f"SELECT {table.key.shown('t.id')} AS id, count(*) OVER () AS found FROM {table.own(TRUNCATED)} t "
            f"JOIN {table.own('memory_index_state')} s ON s.active_model = t.model "
            f"JOIN {table.qualified} m ON {table.row('m').id} = t.id AND m.{table.vector_name(ACTIVE)} IS NOT NULL "
            "ORDER BY t.id LIMIT $1",
            limit,
        )
    return TruncatedTexts([row["id"] for row in rows], rows[0]["found"] - len(rows) if rows else 0)


def _delete(table: MemoryTable, chosen: str) -> str:
    records = table.own(TRUNCATED)
    locked = f"SELECT t.id, t.model FROM {records} t WHERE {chosen} FOR UPDATE OF t SKIP LOCKED"
    return f"DELETE FROM {records} WHERE (id, model) IN ({locked})"
