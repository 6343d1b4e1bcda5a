"""A worker beside a swap does not end when the second column goes."""

import asyncio

from memory_recall.schema.revisions import require_schema
from memory_recall.schema.table import describe
from memory_recall.swap import standby_sql
from tests.integration.memory_recall.swap.conftest import SwapBench


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
