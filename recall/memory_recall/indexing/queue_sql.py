"""The queue of pending rows: reads them by pages, checks rows before their texts are sent, and stores vectors.

There is no queue table: every row that may have a vector and has none is pending. One statement stores the vectors of a
batch. It stores a vector only if the row's text still has the hash of the embedded text, the row is still neither
sensitive nor deleted, and the column still belongs to the model. Rows of a new partition wait until it is adopted. Rows
that another session has locked are not waited for, and rest before they are read again. If the table refuses the update
of a row, the other rows of the statement are stored without it. After each statement the rows are looked at again: a
trigger of the table's owner may have left a row without its vector, which would otherwise be embedded without end.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

import asyncio
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from pgvector import HalfVector

from memory_recall.errors import DatabaseRejected, LockNotAvailable, RowRefused, VectorUndone
from memory_recall.indexing.locked_rows import KnownRow, LockedRows
from memory_recall.postgres.connection import Connection
from memory_recall.postgres.driver_errors import refuses_a_row, translated
from memory_recall.postgres.session_sql import row_within
from memory_recall.schema.columns.keys import MemoryId
from memory_recall.schema.ddl import literal
from memory_recall.schema.definitions import in_adopted_partition
from memory_recall.schema.requirements.row_security import hides_rows
from memory_recall.schema.requirements.unique_ids import has_unique_ids
from memory_recall.schema.table import ACTIVE, MemoryTable, VectorColumn
from memory_recall.schema.truncated import record_truncated

# Quarantined or delayed. A longer delay than any that is ever set comes from a clock that was set back afterwards.
_NOT_YET = "(f.next_attempt = 'infinity' OR f.next_attempt BETWEEN now() AND now() + interval '10 minutes')"
_PAGE_BYTES = 8 << 20  # of the texts of one page; of a longer first text the page consists alone
_LOCK_PAUSES = (0.05, 0.2)  # seconds, after which rows that were locked are tried again; most locks last for moments
_DIVIDED_LOCK_MS = 100  # that a part of the rows waits for a lock of something else that its triggers write to
_DIVIDING_SECONDS = 30.0
_COUNTING_SECONDS = 20.0  # for a number that only shows how far a backfill has got
_LONGEST_TEXT = 1_000_000  # characters of a text that are read; no model's window takes as many


@dataclass(frozen=True, slots=True)
class PendingRow:
    """A row to embed. Its `repr` omits the text, so that no log shows it.

    If `is_cut` is set, `text` is the beginning of a longer text. The hash is that of the whole text.
    """

    id: MemoryId
    text: str = field(repr=False)
    text_hash: str
    is_cut: bool = False

    @classmethod
    def read(cls, record: Any) -> Self:  # noqa: ANN401  (a record of the driver)
        """Make the row of a record with the columns `id`, `content`, as `beginning` gives it, and `hash`."""
        text = record["content"]
        return cls(record["id"], text[:_LONGEST_TEXT], record["hash"], is_cut=len(text) > _LONGEST_TEXT)

    @property
    def known(self) -> KnownRow:
        """What `LockedRows` knows the row by."""
        return self.id, self.text_hash

    def without_text(self) -> Self:
        """Return the row without its text, which only embedding needs."""
        return replace(self, text="")


@dataclass(slots=True)
class _EncodedHalfVector(HalfVector):
    """A vector in the binary form in which Postgres receives a `halfvec`. Its `repr` omits the vector."""

    binary: bytes = field(repr=False)

    def to_binary(self) -> bytes:
        """Return the binary form, for the codec of the connection."""
        return self.binary


def encoded(vectors: npt.NDArray[np.float32]) -> list[HalfVector]:
    """Return the vectors of an array (vectors, dimensions) as parameters of a statement.

    They are encoded together, because pgvector's codec, which encodes one after another, takes several times as long.
    asyncpg would take the rows of a bare array for another dimension of the parameter.
    """
    dimensions = vectors.shape[1]
    words = np.empty((len(vectors), 2 + dimensions), dtype=">u2")
    words[:, :2] = dimensions, 0  # the header: the number of dimensions, and two bytes that are not used
    words[:, 2:] = vectors.astype(np.float16).view(np.uint16)
    binary, size = words.tobytes(), words.itemsize * words.shape[1]
    return [_EncodedHalfVector(binary[at : at + size]) for at in range(0, len(binary), size)]


@dataclass(frozen=True, slots=True)
class WorkerShare:
    """The rows that one worker embeds: those whose id modulo `count` is `index`.

    Where the key is no integer, a hash of the id takes its place.
    """

    index: int = 0
    count: int = 1


@dataclass(frozen=True, slots=True)
class Page:
    """Pending rows that are due now. `last` is the id after which the next page begins, or None after the last page."""

    rows: list[PendingRow]
    last: MemoryId | None


@dataclass(frozen=True, slots=True)
class QueueState:
    """When the next row is due, and whether the vector column still takes vectors of the queue's model.

    `seconds_until_due` is the time until the first row is due that is delayed or rests, or None if there is none.
    """

    seconds_until_due: float | None
    current: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """Rows, a vector for each, and the ids of those whose text the model has not read to its end."""

    rows: Sequence[PendingRow]
    vectors: npt.NDArray[np.float32]
    truncated: Collection[MemoryId]

    def part(self, places: Sequence[int]) -> Self:
        """Return the rows at these places with their vectors."""
        return replace(self, rows=[self.rows[place] for place in places], vectors=self.vectors[list(places)])

    def part_of(self, rows: Iterable[PendingRow]) -> Self:
        """Return these of the rows with their vectors."""
        ids = {row.id for row in rows}
        return self.part([place for place, row in enumerate(self.rows) if row.id in ids])


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a batch: how many of the rows have their vector now, and which lack it for what reason.

    `locked` are the rows that another session has locked. `failed` are those that the table refuses to update or whose
    vector a trigger undoes, each with the class of the error.
    """

    stored: int = 0
    locked: list[PendingRow] = field(default_factory=list)
    failed: list[tuple[PendingRow, str]] = field(default_factory=list)

    def __add__(self, other: "Written") -> "Written":
        return Written(self.stored + other.stored, self.locked + other.locked, self.failed + other.failed)


class PendingQueue:
    """The pending rows of one table and one model.

    Args:
        table: the table of memories.
        model_id: the model's id in `memory_index_models`.
        column: the column in which the vectors are stored.
        indexed: whether the partial index over the pending rows exists. With the index, a page is a fixed number of due
            rows. Without the index, a page is what is due among a fixed number of rows with consecutive ids.
    """

    def __init__(
        self, table: MemoryTable, model_id: int, column: VectorColumn = ACTIVE, *, indexed: bool = True
    ) -> None:
        self._table = table
        self._model_id = model_id
        self._locked = LockedRows()
        pending, vector, row = table.pending("m", column), table.vector_name(column), table.row("m")
        failures, stored = table.own(column.failures), table.key.stored
        page = _page_statement if indexed else _key_range_statement
        self._first_page = page(table, column)
        self._next_page = page(table, column, f"{row.id} > $5::{stored}")
        self._state = (
            f"SELECT (SELECT min(CASE WHEN {_NOT_YET} THEN extract(epoch FROM f.next_attempt - now()) ELSE 0 END) "
            f"FROM {failures} f JOIN {table.qualified} m ON {row.id} = f.id WHERE {pending} AND {_share(table)} "
            f"AND {_has_hash(table, 'f.text_hash')} AND f.next_attempt < 'infinity')::float8 AS seconds_until_due, "
            f"{_takes_vectors(table, column, '$3::integer')} AS current"
        )
        self._count = f"SELECT count(*) AS pending FROM {table.qualified} m WHERE {pending} AND {_share(table)}"
        arrays = f"$1::{stored}[], $2::text[], $3::{table.vector_type()}[], $5::boolean[]"
        self._write = (
            f"WITH free AS MATERIALIZED (SELECT {row.id} AS key FROM {table.qualified} m "
            f"WHERE {row.id} = ANY($1::{stored}[]) FOR NO KEY UPDATE SKIP LOCKED), "
            f"stored AS (UPDATE {table.qualified} m SET {vector} = v.embedding "
            f"FROM unnest({arrays}) AS v(id, hash, embedding, truncated) JOIN free f ON f.key = v.id "
            f"WHERE {row.id} = v.id AND {_lacks_vector(table, column, '$4::integer')} "
            f"RETURNING v.id, v.truncated AND m.{vector} IS NOT NULL AS truncated), "
            f"{record_truncated(table, 'stored', '$4::integer')} SELECT (SELECT count(*) FROM stored) AS stored, "
            f"ARRAY(SELECT v.place FROM unnest($1::{stored}[]) WITH ORDINALITY AS v(id, place) "
            "WHERE v.id NOT IN (SELECT f.key FROM free f) "
            f"AND EXISTS (SELECT FROM {table.qualified} m WHERE {row.id} = v.id AND m.{vector} IS NULL)) AS locked"
        )
        self._undone = (
            f"SELECT v.place FROM unnest($1::{stored}[], $2::text[]) WITH ORDINALITY AS v(id, hash, place) "
            f"JOIN {table.qualified} m ON {row.id} = v.id "
            f"WHERE {_lacks_vector(table, column, '$3::integer')}"
        )
        self._unlocked = (
            f"SELECT {table.key.shown(row.id)} AS id FROM {table.qualified} m WHERE {row.id} = ANY($1::{stored}[]) "
            "FOR NO KEY UPDATE SKIP LOCKED"
        )
        self._done = (
            f"SELECT count(*) FROM {table.qualified} m JOIN unnest($1::{stored}[], $2::text[]) AS v(id, hash) "
            f"ON v.id = {row.id} WHERE m.{vector} IS NOT NULL AND {_has_hash(table, 'v.hash')}"
        )

    async def page(self, connection: Connection, after: MemoryId | None, share: WorkerShare, limit: int) -> Page:
        """Read a page of the rows that are due, in the order of ids: those after the id `after`, or the first ones.

        The page has at most `limit` rows, whose texts have at most 8 MiB together, but always its first row. Rows that
        rest are left out, and those that another session has locked, if any row was locked lately. It has no rows if
        the column belongs to another model by now.
        """
        if after is None:
            self._locked.begin_pass()
        with translated("reading pending rows"):
            bound = [share.index, share.count, limit, self._model_id]
            if after is None:
                rows = await connection.fetch(self._first_page, *bound)
            else:
                rows = await connection.fetch(self._next_page, *bound, after)
        read = [PendingRow.read(row) for row in rows if row["content"] is not None]
        due = [row for row in read if not self._locked.leaves_out(row.known)]
        if due and self._locked.are_expected():
            due = await self._without_locked(connection, due)
        return Page(due, rows[-1]["id"] if rows else None)

    async def _without_locked(self, connection: Connection, rows: list[PendingRow]) -> list[PendingRow]:
        """Return the rows that no other session has locked at this moment; the others would be embedded in vain."""
        with translated("looking for locked rows"):
            found = await connection.fetch(self._unlocked, [row.id for row in rows])
        unlocked = {record["id"] for record in found}
        if len(unlocked) < len(rows):
            self._locked.found_before_embedding()
        return [row for row in rows if row.id in unlocked]

    async def count(self, connection: Connection, share: WorkerShare) -> int:
        """Count the pending rows of the share, including those that are delayed or quarantined.

        If that takes long, the number is estimated as if all rows were pending.
        """
        with translated("counting pending rows"):
            found = await row_within(connection, _COUNTING_SECONDS, self._count, share.index, share.count)
            if found is not None:
                return int(found["pending"])
            rows: float = await connection.fetchval(f"SELECT {self._table.estimated_rows()}")
        return round(rows / share.count)

    async def state(self, connection: Connection, share: WorkerShare) -> QueueState:
        """Read when the share's first delayed or resting row is due, and whether the column is still the model's."""
        with translated("reading delayed rows"):
            row = await connection.fetchrow(self._state, share.index, share.count, self._model_id)
        assert row is not None  # noqa: S101  (a SELECT without FROM yields one row)
        waits = (row["seconds_until_due"], self._locked.seconds_until_due())
        return QueueState(min((wait for wait in waits if wait is not None), default=None), current=row["current"])

    async def write(
        self,
        connection: Connection,
        rows: Sequence[PendingRow],
        vectors: npt.NDArray[np.float32],
        truncated: Collection[MemoryId] = (),
    ) -> Written:
        """Store one vector for each row; return how many of the rows have their vector now, and which failed.

        `truncated` has the ids of the rows whose text the model has not read to its end; that is recorded beside the
        vector. A row that has changed meanwhile gets no vector.

        A row that another session has locked is not waited for: the statement holds locks of other rows, so that it and
        whoever edits these rows could wait for each other, and Postgres would end one of the two. Such a row is tried
        again after moments in which nothing is locked, and then rests. So does a row on whose update a trigger of the
        table's owner waits for another lock. A row whose update a constraint or a trigger refuses is found by halving
        the batch; it has failed, and so has one that lacks its vector afterwards. If the connection broke before a
        write was confirmed, the write is repeated, and rows stored by the first write are counted, too.

        Raises:
            LockNotAvailable: another session has locked the whole table.
            DatabaseRejected: Postgres refuses the statement for another reason than a single row.
        """
        batch = _Batch(rows, vectors, truncated)
        try:
            written = await self._write_repeatedly(connection, batch)
        except (LockNotAvailable, DatabaseRejected) as error:
            if not _may_be_of_some_rows(error):
                raise
            await self._write_unlocked(connection, batch.part([]))  # fails likewise while the table is locked
            written = await self._write_divided(connection, batch, time.monotonic() + _DIVIDING_SECONDS)
        self.rest(written.locked)
        return written

    async def _write_repeatedly(self, connection: Connection, batch: _Batch) -> Written:
        """Write as `_write_unlocked` does, and those rows again after moments that others have locked."""
        written = await self._write_unlocked(connection, batch)
        for pause in _LOCK_PAUSES:
            if written.locked:
                await asyncio.sleep(pause)
                again = await self._write_unlocked(connection, batch.part_of(written.locked))
                written = replace(written, locked=[]) + again
        return written

    async def _write_divided(self, connection: Connection, batch: _Batch, deadline: float) -> Written:
        """Write as `_write_unlocked` does, in ever smaller parts where some row is refused or its trigger waits.

        What has not been tried by the deadline, a time of the monotonic clock, counts as locked.
        """
        if time.monotonic() > deadline:
            return Written(locked=list(batch.rows))
        try:
            with translated("writing vectors"):
                async with connection.transaction():
                    await connection.execute(f"SET LOCAL lock_timeout = {_DIVIDED_LOCK_MS}")
                    return await self._write_unlocked(connection, batch)
        except (LockNotAvailable, DatabaseRejected) as error:
            if not _may_be_of_some_rows(error):
                raise
            if len(batch.rows) == 1:
                (row,) = batch.rows
                return Written(failed=[(row, RowRefused.reason)]) if refuses_a_row(error) else Written(locked=[row])
        places = range(len(batch.rows))
        middle = len(places) // 2
        first = await self._write_divided(connection, batch.part(places[:middle]), deadline)
        return first + await self._write_divided(connection, batch.part(places[middle:]), deadline)

    async def _write_unlocked(self, connection: Connection, batch: _Batch) -> Written:
        """Store the vectors of the rows that no other session has locked."""
        ids, hashes = [row.id for row in batch.rows], [row.text_hash for row in batch.rows]
        vectors, marks = encoded(batch.vectors), [row.id in batch.truncated for row in batch.rows]
        with translated("writing vectors"):
            record = await connection.fetchrow(self._write, ids, hashes, vectors, self._model_id, marks)
            assert record is not None  # noqa: S101  (a SELECT without FROM yields one row)
            stored: int = record["stored"]
            locked = dict.fromkeys(batch.rows[place - 1] for place in record["locked"])
            others = [row for row in batch.rows if row not in locked]  # the next attempt counts the locked rows
            ids, hashes = [row.id for row in others], [row.text_hash for row in others]
            lacking = await connection.fetch(self._undone, ids, hashes, self._model_id) if others else []
            undone = [others[found["place"] - 1] for found in lacking]
            if undone or stored < len(others):
                stored = await connection.fetchval(self._done, ids, hashes)
        return Written(stored, list(locked), [(row, VectorUndone.reason) for row in undone])

    def rest(self, rows: Iterable[PendingRow]) -> None:
        """Leave out rows that another session has locked, for a second at first, and longer each further time."""
        self._locked.add(row.known for row in rows)


def _may_be_of_some_rows(error: LockNotAvailable | DatabaseRejected) -> bool:
    """Return whether a statement failed because of some of its rows: a lock is wanted for them, or they are refused."""
    return isinstance(error, LockNotAvailable) or refuses_a_row(error)


def _takes_vectors(table: MemoryTable, column: VectorColumn, model: str) -> str:
    """Return an SQL condition for whether the column belongs to the model with the id `model`, an SQL expression.

    It is false in a table that took the place of the indexed one, and while a migration discards all vectors. It is
    also false where ids are no longer kept unique or rows are hidden from the role, so that this is noticed at once.
    """
    unique = "true" if table.is_partitioned else has_unique_ids(table, "s.table_oid::oid")
    return (
        f"EXISTS (SELECT FROM {table.own('memory_index_state')} s WHERE s.{column.role} = {model} "
        f"AND s.table_oid::oid = to_regclass({literal(table.qualified)})::oid AND NOT s.discarding "
        f"AND {unique} AND NOT {hides_rows('s.table_oid::oid', writes=True)})"
    )


def _lacks_vector(table: MemoryTable, column: VectorColumn, model: str) -> str:
    """Return an SQL condition for whether the row `m` lacks the vector, by the model `model`, of its text `v.hash`."""
    return (
        f"m.{table.vector_name(column)} IS NULL AND {_has_hash(table, 'v.hash')} AND {table.shareable('m')} "
        f"AND {_takes_vectors(table, column, model)} AND {in_adopted_partition(table, 'm')}"
    )


def _has_hash(table: MemoryTable, recorded: str) -> str:
    """Return an SQL condition for whether the text of the row `m` still has a recorded hash, an SQL expression.

    The planner could join by an equality of hashes, and would then compute the hash of every row of the table.
    """
    return f"NOT ({table.own('memory_index_text_hash')}({table.row('m').content}) IS DISTINCT FROM {recorded})"


def _share(table: MemoryTable) -> str:
    """Return an SQL condition for whether the row `m` belongs to the share $1 of $2."""
    hashed = table.key.hashed(table.row("m").id)
    return f"mod(mod({hashed}, $2::bigint) + $2::bigint, $2::bigint) = $1::bigint"


def _due(table: MemoryTable, column: VectorColumn) -> str:
    # A flip between two statements exchanges the columns; the rows that this column lacks are another model's then.
    return (
        f"{_takes_vectors(table, column, '$4::integer')} AND {table.pending('m', column)} "
        f"AND {_share(table)} AND {in_adopted_partition(table, 'm')} "
        f"AND NOT EXISTS (SELECT FROM {table.own(column.failures)} f WHERE f.id = {table.row('m').id} "
        f"AND {_has_hash(table, 'f.text_hash')} AND {_NOT_YET})"
    )


def _page_statement(table: MemoryTable, column: VectorColumn, following: str = "true") -> str:
    row = table.row("m")
    return _bounded(
        table,
        f"SELECT {row.id} AS key, coalesce({row.content}, '') AS content FROM {table.qualified} m "
        f"WHERE {_due(table, column)} AND {following} ORDER BY {row.id} LIMIT $3::bigint",
    )


def _key_range_statement(table: MemoryTable, column: VectorColumn, following: str = "true") -> str:
    # The due rows are picked from a fixed number of rows: a plan over all of them would sort the table for each page.
    row, columns = table.row("m"), "*, tableoid" if table.is_partitioned else "*"
    return _bounded(
        table,
        f"SELECT {row.id} AS key, d.content "
        f"FROM (SELECT {columns} FROM {table.qualified} m WHERE {following} ORDER BY {row.id} LIMIT $3::bigint) m "
        f"LEFT JOIN LATERAL (SELECT coalesce({row.content}, '') AS content WHERE {_due(table, column)}) d ON true",
    )


def _bounded(table: MemoryTable, rows: str) -> str:
    """Return the statement of a page: the first of the rows, whose texts together are within the bound of a page.

    `rows` is a query for `key` and `content`. Postgres knows the bytes of a text without reading it, so that texts
    beyond the bound cost nothing.
    """
    size = "octet_length(r.content)"
    return (
        f"SELECT {table.key.shown('p.key')} AS id, {beginning('p.content')} AS content, "
        f"{table.own('memory_index_text_hash')}(p.content) AS hash FROM (SELECT r.*, {size} AS size, "
        f"coalesce(sum({size}) OVER (ORDER BY r.key ROWS UNBOUNDED PRECEDING), 0) AS bytes FROM ({rows}) r) p "
        f"WHERE p.bytes <= {_PAGE_BYTES} OR p.bytes = p.size ORDER BY p.key"
    )


def beginning(content: str) -> str:
    """Return SQL for as much of a text as is read of it, and one character more where there is more.

    Nothing is lost by it that a model would have read. The whole of a text of hundreds of megabytes would end a worker
    for want of memory, and its successor likewise.
    """
    return f"left({content}, {_LONGEST_TEXT + 1})"


async def still_shareable(
    connection: Connection, rows: Sequence[PendingRow], *, table: MemoryTable
) -> list[PendingRow]:
    """Return the rows whose text is unchanged and that are still neither sensitive nor deleted, in the same order."""
    row_id = table.row("m").id
    with translated("checking rows before they are sent"):
        found = await connection.fetch(
            f"SELECT {table.key.shown(row_id)} AS id FROM {table.qualified} m "
            f"JOIN unnest($1::{table.key.stored}[], $2::text[]) AS v(id, hash) "
            f"ON v.id = {row_id} WHERE {table.shareable('m')} AND {_has_hash(table, 'v.hash')}",
            [row.id for row in rows],
            [row.text_hash for row in rows],
        )
    allowed = {row["id"] for row in found}
    return [row for row in rows if row.id in allowed]


async def first_with_text(connection: Connection, table: MemoryTable, limit: int) -> list[PendingRow]:
    """Read the first `limit` rows by id that have a text and may have a vector, whether or not they have one."""
    return await _with_text(connection, table, limit, order=table.row("m").id)


async def sample_with_text(connection: Connection, table: MemoryTable, limit: int) -> list[PendingRow]:
    """Read `limit` random rows that have a text and may have a vector, whether or not they have one."""
    return await _with_text(connection, table, limit, order="random()")


async def _with_text(connection: Connection, table: MemoryTable, limit: int, *, order: str) -> list[PendingRow]:
    row = table.row("m")
    with translated("reading texts"):
        records = await connection.fetch(
            f"SELECT {table.key.shown(row.id)} AS id, {beginning(row.content)} AS content, "
            f"{table.own('memory_index_text_hash')}({row.content}) AS hash FROM {table.qualified} m "
            f"WHERE {table.shareable('m')} AND btrim({row.content}) <> '' ORDER BY {order} LIMIT $1",
            limit,
        )
    return [PendingRow.read(record) for record in records]
