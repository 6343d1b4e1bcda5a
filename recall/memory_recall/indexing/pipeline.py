"""Makes one pass over the pending rows, in which reading, embedding and writing overlap.

A reader divides pages of rows into batches. Several embedding requests run at once, so that the embedder never idles.
One writer takes all batches that have been embedded and stores their vectors in one statement. Pages are bounded in
rows and in bytes, the queues between reader, embedder and writer in batches, and a text is dropped once it is embedded.
So the process's memory grows neither with the table nor with the lengths of its texts. No transaction is open in the
database while a text is embedded.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from memory_recall.embedding.requests import Pacer, divided
from memory_recall.errors import RowRefused, first_of
from memory_recall.indexing.progress import Progress, Tally
from memory_recall.indexing.quarantine_sql import RetryPolicy, forget_settled, record_failures
from memory_recall.indexing.queue_sql import Page, PendingQueue, PendingRow, WorkerShare
from memory_recall.indexing.retry import Outcome, RetryingEmbedder
from memory_recall.postgres.connection import Connection
from memory_recall.postgres.session import Session
from memory_recall.schema.columns.keys import MemoryId
from memory_recall.schema.table import ACTIVE, MemoryTable, VectorColumn

PAGE_ROWS = 512
_SCATTERED_PAGE_ROWS = 2048
_WRITE_BACKLOG = 32  # batches; enough for a full statement to gather while the one before is under way
_CHARACTERS_PER_TOKEN = 4  # of English prose; the embedder counts exactly, an estimate suffices here


@dataclass(frozen=True)
class BatchLimits:
    """The limits of one request, in estimated tokens and in rows. A row that alone exceeds them is sent by itself."""

    tokens: int = 2048
    rows: int = 32
    max_tokens_per_row: int = 512  # a longer text is truncated by the embedder and costs no more than this


def estimated_tokens(text: str, limits: BatchLimits) -> int:
    """Estimate how many tokens of a text the embedder computes: at most as many as the model accepts in one text."""
    return min(len(text) // _CHARACTERS_PER_TOKEN + 2, limits.max_tokens_per_row)


def batches(rows: Iterable[PendingRow], limits: BatchLimits) -> Iterator[list[PendingRow]]:
    """Divide rows, in their order, into batches within the limits, so that all requests cost about the same."""
    return divided(
        rows, lambda row: estimated_tokens(row.text, limits), most_items=limits.rows, most_cost=limits.tokens
    )


@dataclass(frozen=True)
class PipelineOptions:
    """How a worker reads and embeds rows. If `rows_per_second` is None, the rate is not limited."""

    limits: BatchLimits = field(default_factory=BatchLimits)
    share: WorkerShare = field(default_factory=WorkerShare)
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    concurrency: int = 4
    rows_per_second: float | None = None


@dataclass(frozen=True)
class WritePace:
    """How fast vectors are stored: at most `rows` in one statement, and writing for a `share` (0 to 1) of the time.

    Where the table has a vector index, storing a vector costs milliseconds, because the row's new version is inserted
    into the index's graph. A long statement would keep rows locked for seconds, and statements without a pause between
    them would take the processors from recalls.

    If `scattered` is set, neighbouring rows are stored in different statements. Postgres adds no index entries for an
    update if no indexed column changes and the row's new version fits into the block of the old version (a heap-only
    tuple). A full block has room again after an earlier statement has left a dead version in it.
    """

    rows: int
    share: float = 1.0
    scattered: bool = False

    @property
    def page_rows(self) -> int:
        """The number of rows that are read in one page."""
        return _SCATTERED_PAGE_ROWS if self.scattered else PAGE_ROWS

    def arranged(self, page: list[PendingRow]) -> list[PendingRow]:
        """Return the rows of a page in the order in which they are to be stored."""
        statements = -(-len(page) // self.rows)
        return [row for first in range(statements) for row in page[first::statements]] if self.scattered else page

    def rest(self, seconds: float) -> float:
        """Return how many seconds to pause after a statement that took `seconds`."""
        return seconds * (1 / self.share - 1)


BULK = WritePace(rows=1024)  # a first backfill: there is no vector index yet
FRESH = WritePace(rows=64)  # sync, beside the vector index
BACKGROUND = WritePace(rows=64, share=0.5, scattered=True)


def beside_index(workers: int) -> WritePace:
    """Return the pace of a backfill beside the vector index, whose workers write for half of the time together."""
    return WritePace(rows=FRESH.rows, share=0.5 / workers)


class Pipeline:
    """Embeds the rows that are pending at the moment, for a backfill, the sync worker or a model swap.

    `tally` counts what was done, and `refused` the updates of rows that the table refused. `read_seconds` is the time
    that the last pass spent on reading rows.
    """

    def __init__(
        self,
        *,
        reader: Session,
        writer: Session,
        table: MemoryTable,
        queue: PendingQueue,
        embedder: RetryingEmbedder,
        options: PipelineOptions,
        progress: Progress,
        stop: asyncio.Event,
        tally: Tally,
        column: VectorColumn = ACTIVE,
        writes: WritePace,
    ) -> None:
        self._column = column
        self._writes = writes
        self._reader = reader
        self._writer = writer
        self.table = table
        self.queue = queue
        self._embedder = embedder
        self._options = options
        self._progress = progress
        self._stop = stop
        self._pacer = Pacer()
        self.tally = tally
        self.refused = 0
        self.read_seconds = 0.0

    async def run_pass(self) -> int:
        """Embed the rows that are due, page by page; return how many rows were read.

        Raises:
            MemoryIndexError: an error that waiting does not cure, or an outage that lasted longer than the limit.
        """
        before = self.tally.read
        self.read_seconds = 0.0
        depth = self._options.concurrency
        to_embed: asyncio.Queue[list[PendingRow] | None] = asyncio.Queue(maxsize=depth)
        to_write: asyncio.Queue[Outcome | None] = asyncio.Queue(maxsize=_WRITE_BACKLOG)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._read(to_embed))
                tasks.create_task(self._embed_all(to_embed, to_write))
                tasks.create_task(self._write(to_write))
        except BaseExceptionGroup as group:
            raise first_of(group) from None
        return self.tally.read - before

    async def forget_settled(self) -> None:
        """Delete the recorded failures of rows that have a vector or another text by now, or may not have a vector."""
        reader, column = self._reader, self._column
        await through_pages(
            lambda last: reader.run(partial(forget_settled, table=self.table, column=column, after=last)), self._stop
        )

    async def _read(self, to_embed: asyncio.Queue[list[PendingRow] | None]) -> None:
        after: MemoryId | None = None
        while not self._stop.is_set():
            page = await self._reader.run(partial(self._page, after))
            if page.last is None:
                break
            after = page.last
            for batch in batches(self._writes.arranged(page.rows), self._options.limits):
                if self._stop.is_set():
                    break
                if self._options.rows_per_second is not None:
                    await self._pacer.admit(len(batch) / self._options.rows_per_second)
                self.tally.read += len(batch)
                await to_embed.put(batch)
        await to_embed.put(None)

    async def _page(self, after: MemoryId | None, connection: Connection) -> Page:
        began = time.monotonic()
        page = await self.queue.page(connection, after, self._options.share, self._writes.page_rows)
        self.read_seconds += time.monotonic() - began  # of this attempt only, without an outage before it
        return page

    async def _embed_all(
        self, to_embed: asyncio.Queue[list[PendingRow] | None], to_write: asyncio.Queue[Outcome | None]
    ) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(self._options.concurrency):
                tasks.create_task(self._embed(to_embed, to_write))
        await to_write.put(None)

    async def _embed(
        self, to_embed: asyncio.Queue[list[PendingRow] | None], to_write: asyncio.Queue[Outcome | None]
    ) -> None:
        while (batch := await to_embed.get()) is not None:
            if not self._stop.is_set():  # what was read and not sent yet stays pending
                outcome = await self._embedder.embed(batch)
                await to_write.put(outcome.without_texts())
        await to_embed.put(None)  # for the next of us

    async def _write(self, to_write: asyncio.Queue[Outcome | None]) -> None:
        ended = False
        while not ended:
            waiting = [await to_write.get()]
            while not to_write.empty() and _rows_in(waiting) < self._writes.rows:
                waiting.append(to_write.get_nowait())
            ended = None in waiting
            outcomes = [outcome for outcome in waiting if outcome is not None]
            if outcomes:
                began = time.monotonic()
                await self._store(outcomes)
                await sleep_unless(self._stop, self._writes.rest(time.monotonic() - began))

    async def _store(self, outcomes: list[Outcome]) -> None:
        stored = [part for outcome in outcomes for part in outcome.embedded]
        failed = [item for outcome in outcomes for item in outcome.failed]
        embedded = 0
        if stored:
            rows = [row for part, _ in stored for row in part]
            vectors = np.concatenate([batch.vectors for _, batch in stored])
            truncated = {part[place].id for part, batch in stored for place in batch.truncated}
            written = await self._writer.run(lambda connection: self.queue.write(connection, rows, vectors, truncated))
            embedded = written.stored
            failed += written.failed
            self.refused += sum(reason == RowRefused.reason for _, reason in written.failed)
            self.tally.changed += len(rows) - embedded - len(written.failed)
        quarantined = 0
        if failed:
            recorded = await self._writer.run(
                lambda connection: record_failures(connection, self.table, failed, self._options.policy, self._column)
            )
            self.queue.rest(recorded.unrecorded)
            quarantined = recorded.quarantined
        self.tally.embedded += embedded
        self.tally.failed += len(failed)
        self.tally.quarantined += quarantined
        for outcome in outcomes:
            self.tally.changed += outcome.withheld
            self.tally.tokens += outcome.tokens
            self.tally.truncated += outcome.truncated
            self.tally.failed_batches += outcome.failed_batches
        self._progress.advanced(self.tally)


def _rows_in(waiting: list[Outcome | None]) -> int:
    return sum(len(part) for outcome in waiting if outcome is not None for part, _ in outcome.embedded)


async def sleep_unless(stop: asyncio.Event, seconds: float) -> None:
    """Sleep for `seconds`, or until `stop` is set if that happens earlier."""
    if seconds > 0:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), seconds)


async def through_pages(page: Callable[[Any], Awaitable[Any]], stop: asyncio.Event) -> None:
    """Await `page(None)`, and then `page` with what it returned last, until that is None or `stop` is set."""
    last = await page(None)
    while last is not None and not stop.is_set():
        last = await page(last)
