"""A model swap of another program's table fills, measures, flips and rolls back, whatever the table's key is."""

import asyncio
from functools import partial
from typing import Any

from memory_recall import EVERYONE
from memory_recall.embedding.client import EmbedderClient
from memory_recall.embedding.served_model import ServedModel
from memory_recall.evaluation.evaluate import Question
from memory_recall.hnsw.repair import IndexParameters
from memory_recall.indexing.embedders import EmbedderDirectory
from memory_recall.indexing.queue_sql import sample_with_text
from memory_recall.postgres.connection import opened
from memory_recall.schema.table import STANDBY
from memory_recall.swap import gate
from memory_recall.swap.process import SwapProcess, SwapRequest
from memory_recall.swap.state_sql import SwapRecord, latest, read_fill
from tests.integration.memory_recall.adopted.conftest import BOILER, KETTLE, SECRET, STOVE, StoreBench
from tests.integration.memory_recall.fake_embedder import FakeEmbedder
from tests.integration.memory_recall.workbench import DIMENSIONS


async def swapped(
    adopted: StoreBench, following: FakeEmbedder, *, questions: list[Question], back: bool = False
) -> SwapRecord:
    """Carry out a swap to the next model, measured on the questions, or the rollback of one."""
    work = adopted.work
    configured = work.embedder if back else following
    target = None if back else ServedModel(following.model, following.dimensions, following.digest)
    async with (
        EmbedderClient(configured.url, configured.model, timeout=10) as client,
        EmbedderClient(work.embedder.url, work.embedder.model, timeout=10) as active,
        EmbedderDirectory(
            client,
            lambda url, name: EmbedderClient(url, name, timeout=10),
            model=client.model or "",
            url=client.base_url,
        ) as directory,
    ):

        async def measure(_swap: object, retrying: Any) -> gate.Verdict:
            return await gate.measure(
                adopted.source, adopted.store.table, questions, active=active, following=client, max_drop=0.5,
                retrying=retrying,
            )  # fmt: skip

        request = SwapRequest(target=target, worker=work.plan, index=IndexParameters(), flip=True, lock_seconds=20)
        process = SwapProcess(
            adopted.source, directory, request, measure=None if back else measure, progress=work.ear,
            stop=asyncio.Event(),
        )  # fmt: skip
        return await process.run()


async def test_a_swap_fills_measures_and_flips_and_a_rollback_returns(adopted: StoreBench) -> None:
    ids = [await adopted.add(text) for text in (BOILER, KETTLE, STOVE)]
    if adopted.store.hide is not None:
        await adopted.add(SECRET, secret=True)
    await adopted.work.backfill()
    await adopted.index()
    ask = partial(Question, stratum="all", user_id=EVERYONE)
    questions = [ask("q1", "boiler", relevant=frozenset(ids[:1])), ask("q2", "kettle", relevant=frozenset(ids[1:2]))]
    async with FakeEmbedder(dimensions=DIMENSIONS, model="small", digest="sha256:bb") as following:
        following.salt = "next:"
        record = await swapped(adopted, following, questions=questions)
        assert record.stage == "flipped", record.message
        assert record.gate is not None
        assert (record.gate["outcome"], record.gate["queries"]) == ("passed", 2)
        assert await adopted.embedded() == await adopted.embedded(STANDBY) == set(ids)
        assert not any("canary" in text for text in following.received)
        changed = await adopted.add("Added after the flip.")
        await adopted.execute(adopted.store.edit, ids[0], "Edited after the flip.")
        assert changed not in await adopted.embedded()
        assert await adopted.embedded(STANDBY) == set(ids[1:])
        assert (await swapped(adopted, following, questions=[], back=True)).stage == "flipped"
        assert await adopted.embedded() == {*ids, changed}
    async with opened(adopted.source, "test") as connection:
        table = await adopted.table()
        assert (await read_fill(connection, table)).wanted == 4
        assert len(await sample_with_text(connection, table, 10)) == 4
        assert (found := await latest(connection, table)) is not None
        assert found.is_rollback
