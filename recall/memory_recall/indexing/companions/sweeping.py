"""Deletes, while the sync worker runs, what is recorded of texts that are gone or may no longer be used.

These are hashes of failed texts, ids of truncated texts, marks of `memory curate`, and links of the concept graph.
Triggers do this with the text. But a trigger leaves a record that somebody has locked, and it neither sees a record
that a later transaction adds nor fires where a partition is dropped, detached or truncated, or where logical
replication deletes rows of an ordinary table. Nor does a trigger see what was committed after the snapshot by which its
transaction is isolated.

The sweep also makes the words that a search column of ours lacks, as after a table was migrated beside a worker.
"""

import asyncio
import time
from functools import partial

from memory_recall.errors import MemoryIndexError
from memory_recall.graph.sweeping import may_sweep_links, sweep_links
from memory_recall.indexing.pipeline import sleep_unless, through_pages
from memory_recall.indexing.progress import Progress
from memory_recall.indexing.quarantine_sql import forget_settled
from memory_recall.indexing.words_sql import fill_words
from memory_recall.postgres.connection import DsnSource
from memory_recall.postgres.session import opened_session
from memory_recall.postgres.session_sql import apply_settings
from memory_recall.retrying import Awaited
from memory_recall.schema.revisions import require_schema
from memory_recall.schema.supersessions import drop_ended_links, may_drop_links, sweep_page
from memory_recall.schema.table import ACTIVE, STANDBY
from memory_recall.schema.truncated import sweep_truncated

_EVERY_SECONDS = 60.0
_REST_FACTOR = 9.0  # so that sweeping, which reads what has not changed again, takes a tenth of the time at most
_LONGEST_REST_SECONDS = 3600.0
_SETTINGS = {"lock_timeout": "1000"}  # milliseconds; whoever holds a lock for longer is not waited for


async def sweep_hashes(
    source: DsnSource,
    table: str,
    progress: Progress,
    stop: asyncio.Event,
    *,
    every_seconds: float = _EVERY_SECONDS,
) -> None:
    """Sweep the table of this name at once and then every `every_seconds`, until `stop` is set.

    After a sweep that took long, the rest is nine times as long as the sweep, up to an hour.

    An error is reported, and the next sweep tries again, because an error here must not stop the sync worker.
    """
    while not stop.is_set():
        began = time.monotonic()
        try:
            await _sweep(source, table, stop)
        except MemoryIndexError as error:
            progress.outage_began(Awaited.RECORDED_HASHES, error)
            progress.attempt_failed(Awaited.RECORDED_HASHES, error, wait=Awaited.RECORDED_HASHES)
        else:
            progress.wait_ended(Awaited.RECORDED_HASHES)
        rest = min(_REST_FACTOR * (time.monotonic() - began), _LONGEST_REST_SECONDS)
        await sleep_unless(stop, max(every_seconds, rest))


async def _sweep(source: DsnSource, name: str, stop: asyncio.Event) -> None:
    async with opened_session(source, "memory-sweep") as connection:
        await apply_settings(connection, _SETTINGS)
        table = await require_schema(connection, name)
        await through_pages(partial(fill_words, connection, table), stop)
        for column in (ACTIVE, STANDBY):
            await through_pages(partial(forget_settled, connection, table, column), stop)
        await through_pages(partial(sweep_truncated, connection, table), stop)
        await through_pages(partial(sweep_page, connection, table), stop)
        if await may_sweep_links(connection, table):
            await through_pages(partial(sweep_links, connection, table), stop)
        if await may_drop_links(connection, table):
            await drop_ended_links(connection, table)
