"""A worker beside a swap does not end when the second column goes."""

import asyncio

import numpy as np
import pytest

from memory_recall.embedding.canary import Canary
from memory_recall.embedding.client import EmbedderClient
from memory_recall.errors import ModelMismatch
from memory_recall.indexing.embedders import EmbedderDirectory
from memory_recall.schema.revisions import require_schema
from memory_recall.schema.table import describe
from memory_recall.swap import standby_sql
from memory_recall.swap.standby import fill_standby
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


async def test_the_next_model_s_column_takes_no_vectors_of_an_embedder_that_identifies_its_model_otherwise(
    swaps: SwapBench,
) -> None:
    """A file's digest and a canary cannot be compared, so that nobody knows whether its vectors are of that model."""
    await swaps.swap(flip=False)
    canary = Canary.of(np.eye(3, 8).tolist())
    await swaps.work.execute(f"UPDATE memory_index_models SET digest = '{canary}' WHERE name = 'small'")
    await swaps.work.execute("UPDATE memories SET content = 'edited ' || id")
    client = EmbedderClient(swaps.following.url, "small")
    directory = EmbedderDirectory(client, lambda _url, _model: client, model="small", url=client.base_url)
    filling = fill_standby(
        swaps.source, directory, swaps.work.plan, idle_seconds=0.1, progress=swaps.work.ear, stop=swaps.stop
    )
    async with client:
        with pytest.raises(ModelMismatch, match="in another way"):
            await asyncio.wait_for(filling, timeout=10)
    assert await swaps.work.value("SELECT count(embedding_standby) FROM memories") == 0
