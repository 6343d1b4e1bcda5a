"""A worker beside a swap neither ends when the second column goes nor locks rows crosswise with the swap."""

import asyncio

import numpy as np
from pgvector.asyncpg import register_vector

from memory_recall.indexing.queue_sql import PendingQueue, WorkerShare
from memory_recall.schema.revisions import require_schema
from memory_recall.schema.table import describe
from memory_recall.swap import standby_sql
from tests.integration.memory_recall.swap.conftest import SwapBench
from tests.integration.memory_recall.workbench import DIMENSIONS


async def test_a_worker_that_looks_at_the_rules_while_a_swap_is_aborted_finds_them_in_place(swaps: SwapBench) -> None:
    """Its statement sees the triggers as they were when it began, and their definitions as they are: gone."""
    await swaps.swap(flip=False)
    async with swaps.work.database.connection() as aborting, swaps.work.database.connection() as looking:
        table = await describe(aborting, "memories")
        transaction = aborting.transaction()
        await transaction.start()
        for statement in standby_sql.drop_standby(table):
            await aborting.execute(statement)
        found = asyncio.create_task(require_schema(looking, "memories"))
        waits = f"SELECT EXISTS (SELECT FROM pg_locks WHERE pid = {looking.get_server_pid()} AND NOT granted)"
        async with asyncio.timeout(60):
            while not await swaps.work.value(waits) and not found.done():  # noqa: ASYNC110  (the server changes)
                await asyncio.sleep(0.02)
        assert not found.done()
        await transaction.commit()
        assert (await found).exists


async def test_a_worker_that_waits_for_a_row_has_locked_none_behind_it(swaps: SwapBench) -> None:
    """During a swap two workers write to the same rows, which they could otherwise lock crosswise, with edits between.

    With indexes only, the server takes the rows as they are given, as it does in a large table.
    """
    await swaps.work.insert(*(f"row {number}" for number in range(960)))
    await swaps.work.execute("ANALYZE memories")
    database = swaps.work.database
    async with database.connection() as editing, database.connection() as other, database.connection() as worker:
        table, active = await describe(worker, "memories"), (await swaps.roles()).active
        await register_vector(worker)
        for kind in ("seqscan", "hashjoin", "mergejoin", "bitmapscan"):
            await worker.execute(f"SET enable_{kind} = off")
        queue = PendingQueue(table, active.id)
        first, second, *_ = (await queue.page(worker, 0, WorkerShare(), 10)).rows
        await editing.execute(f"BEGIN; SELECT FROM memories WHERE id = {first.id} FOR UPDATE")
        written = asyncio.create_task(queue.write(worker, [second, first], np.ones((2, DIMENSIONS), dtype=np.float32)))
        waits = f"SELECT EXISTS (SELECT FROM pg_locks WHERE pid = {worker.get_server_pid()} AND NOT granted)"
        async with asyncio.timeout(60):
            while not await swaps.work.value(waits):  # noqa: ASYNC110  (the server changes)
                await asyncio.sleep(0.02)
        assert await other.fetchval("SELECT id FROM memories WHERE id = $1 FOR UPDATE NOWAIT", second.id) == second.id
        await editing.execute("COMMIT")
        assert await written == 2
