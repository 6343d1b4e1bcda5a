"""Keeps the concept graph up to date while the sync worker runs.

It has a database session of its own and needs no embedder. A notification that rows have changed wakes it, and it also
looks at intervals, for changes that it had to leave and for notifications that were lost.
"""

import asyncio

from memory_recall.errors import MemoryIndexError
from memory_recall.graph.filling import Pass, fill_pass
from memory_recall.indexing.pipeline import sleep_unless
from memory_recall.indexing.progress import Progress
from memory_recall.indexing.sync import Wakeup
from memory_recall.indexing.worker import WorkerPlan
from memory_recall.postgres.connection import Connection, DsnSource
from memory_recall.postgres.session import Session
from memory_recall.retrying import Awaited
from memory_recall.schema.table import describe

_POLL_SECONDS = 5.0
_LEFT_SECONDS = 1.0  # before what somebody was changing is looked at again
_RETRY_SECONDS = 10.0
_REST_SECONDS = 0.25  # after a pass, so that a flood of notifications causes four passes a second at most
# A worker that stands still, such as one without CPU, holds its locks no longer than this.
_SETTINGS = {"idle_in_transaction_session_timeout": "10s"}


async def maintain_graph(source: DsnSource, plan: WorkerPlan, progress: Progress, stop: asyncio.Event) -> None:
    """Fill the concept graph whenever it is enabled, until `stop` is set.

    An error is reported, and the filling is tried again later, because an error about the graph must not stop the sync
    worker.
    """
    while not stop.is_set():
        try:
            await fill_graph(source, plan, progress=progress, stop=stop)
        except MemoryIndexError as error:
            progress.outage_began(Awaited.CONCEPT_GRAPH, error)
            progress.attempt_failed(Awaited.CONCEPT_GRAPH, error, wait=Awaited.CONCEPT_GRAPH)
            await sleep_unless(stop, _RETRY_SECONDS)


async def fill_graph(source: DsnSource, plan: WorkerPlan, *, progress: Progress, stop: asyncio.Event) -> None:
    """Make pass after pass over the queue of changed memories; return once `stop` is set.

    Raises:
        DatabaseUnreachable, LockNotAvailable: an outage lasted longer than the limit.
    """
    wakeup = Wakeup()

    async def prepare(connection: Connection) -> None:
        await wakeup.listen(connection, (await describe(connection, plan.table)).name)

    session = Session(
        source,
        name="memory-graph",
        listener=progress,
        prepare=prepare,
        settings=_SETTINGS,
        outage_timeout=plan.outage_timeout,
    )
    async with session:
        while not stop.is_set():
            done = await session.run(lambda connection: _pass(connection, plan.table, stop))
            progress.wait_ended(Awaited.CONCEPT_GRAPH)
            if not done.more:
                await sleep_unless(stop, _REST_SECONDS)
                await wakeup.wait(_LEFT_SECONDS if done.left else _POLL_SECONDS, stop)


async def _pass(connection: Connection, name: str, stop: asyncio.Event) -> Pass:
    """Make one pass over the queue of the table as it is now."""
    return await fill_pass(connection, await describe(connection, name), stop)
