"""The rows of another program's table are embedded, kept up to date, quarantined and swept, whatever its key is."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest

from memory_recall.cli import quarantine
from memory_recall.embedding.client import EmbedderClient
from memory_recall.errors import InvalidInput
from memory_recall.hnsw.check import measure_index
from memory_recall.hnsw.definition import inspect_index
from memory_recall.indexing.dry_run import dry_run
from memory_recall.indexing.embedders import EmbedderDirectory
from memory_recall.indexing.quarantine_sql import forget_settled, listed
from memory_recall.indexing.sync import sync
from memory_recall.postgres.connection import opened
from memory_recall.schema.columns.keys import MemoryId
from tests.integration.memory_recall.adopted.conftest import BOILER, KETTLE, SECRET, STOVE, StoreBench
from tests.integration.memory_recall.fake_embedder import Answer
from tests.integration.memory_recall.workbench import share

NEVER = 3600.0


def refusing(text: str) -> object:
    """Refuse whatever has this text."""

    def behave(texts: Iterable[str]) -> Answer | None:
        return (422, {}, b'{"error": {"type": "invalid_request_error"}}') if text in " ".join(texts) else None

    return behave


@asynccontextmanager
async def syncing(adopted: StoreBench) -> AsyncIterator[None]:
    work = adopted.work
    async with (
        work.client() as client,
        EmbedderDirectory(client, EmbedderClient, model="tiny", url=client.base_url) as directory,
    ):
        task = asyncio.create_task(
            sync(adopted.source, directory, work.plan, poll_seconds=NEVER, progress=work.ear, stop=work.stop)
        )
        try:
            yield
        finally:
            work.stop.set()
            await task


async def until_embedded(adopted: StoreBench, ids: set[MemoryId]) -> None:
    async with asyncio.timeout(60):
        while await adopted.embedded() != ids:  # noqa: ASYNC110  (it is the database that changes)
            await asyncio.sleep(0.02)


async def test_every_row_is_in_one_share_of_a_backfill_and_only_texts_that_may_be_sent_are(
    adopted: StoreBench,
) -> None:
    ids = {await adopted.add(f"{BOILER} {number}") for number in range(30)}
    if adopted.store.hide is not None:
        await adopted.add(SECRET, secret=True)
    first = (await adopted.work.backfill(adopted.work.with_options(share=share(0, 2)))).tally.embedded
    second = (await adopted.work.backfill(adopted.work.with_options(share=share(1, 2)))).tally.embedded
    assert first + second == 30
    assert min(first, second) > 0
    assert await adopted.embedded() == ids
    assert set(adopted.work.embedder.received) == {adopted.text(f"{BOILER} {number}") for number in range(30)}


async def test_pages_go_on_in_the_order_of_the_key(adopted: StoreBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory_recall.indexing.pipeline.PAGE_ROWS", 3)
    ids = {await adopted.add(f"{KETTLE} {number}") for number in range(10)}
    assert (await adopted.work.backfill()).tally.read == 10
    assert await adopted.embedded() == ids


async def test_sync_embeds_what_is_added_and_edited_and_follows_what_may_be_embedded_no_longer(
    adopted: StoreBench,
) -> None:
    async with syncing(adopted):
        first, second = await adopted.add(BOILER), await adopted.add(KETTLE)
        await until_embedded(adopted, {first, second})
        await adopted.execute(adopted.store.edit, first, STOVE)
        async with asyncio.timeout(60):
            while not any(STOVE in text for text in adopted.work.embedder.received):  # noqa: ASYNC110  (a request)
                await asyncio.sleep(0.02)
        await until_embedded(adopted, {first, second})
        if adopted.store.delete is not None:
            await adopted.execute(adopted.store.delete, first)
            await until_embedded(adopted, {second})
        if adopted.store.hide is not None:
            await adopted.execute(adopted.store.hide, second)
            await until_embedded(adopted, set())


async def test_a_text_that_is_refused_is_quarantined_by_its_id_and_tried_again_when_it_is_named(
    adopted: StoreBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison, fine = await adopted.add("poison"), await adopted.add(KETTLE)
    adopted.work.embedder.behaviour = refusing("poison")  # type: ignore[assignment]
    assert (await adopted.work.backfill()).tally.quarantined == 1
    assert await adopted.embedded() == {fine}
    async with opened(adopted.source, "test") as connection:
        assert [row.id for row in await listed(connection, await adopted.table())] == [poison]
    adopted.work.embedder.behaviour = lambda _texts: None
    assert await quarantine._retry(adopted.settings(monkeypatch), [str(poison)]) == [poison]
    assert (await adopted.work.backfill()).tally.embedded == 1
    assert await adopted.embedded() == {poison, fine}


async def test_an_id_that_the_key_cannot_have_is_refused_with_the_type(
    adopted: StoreBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = (await adopted.table()).key
    with pytest.raises(InvalidInput, match="is no id of a memory") as refused:
        await quarantine._retry(adopted.settings(monkeypatch), ["17\0"])
    assert f"of the type {key.name}" in str(refused.value.remedy)


async def test_what_is_recorded_of_a_text_that_no_trigger_saw_go_is_swept(adopted: StoreBench) -> None:
    ids = [await adopted.add(f"poison {number}") for number in range(3)]
    adopted.work.embedder.behaviour = refusing("poison")  # type: ignore[assignment]
    await adopted.work.backfill()
    table = await adopted.table()
    count = f"SELECT count(*) FROM {table.own('memory_embedding_failures')}"
    assert await adopted.value(count) == 3
    async with opened(adopted.source, "test") as connection:
        await connection.execute(f"ALTER TABLE {table.qualified} DISABLE TRIGGER USER")
        await connection.execute(adopted.store.edit, ids[0], BOILER)
        await forget_settled(connection, table)
    assert await adopted.value(count) == 2


async def test_a_dry_run_reads_texts_and_the_index_is_measured_by_ids(adopted: StoreBench) -> None:
    for number in range(30):
        await adopted.add(f"{STOVE} {number}")
    async with adopted.work.client() as client:
        dry = await dry_run(adopted.source, client, adopted.work.plan, limit=5, progress=adopted.work.ear)
    assert (dry.documents, dry.failed) == (5, 0)
    await adopted.work.backfill()
    await adopted.index()
    async with opened(adopted.source, "test") as connection:
        table = await adopted.table()
        assert await measure_index(connection, table, await inspect_index(connection, table), sample=10) == 1.0
