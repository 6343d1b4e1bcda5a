"""A backfill embeds what may be embedded, once, and says what it did."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from memory_recall.embedding import requests
from memory_recall.errors import DimensionMismatch, ModelMismatch, SchemaBehind
from memory_recall.hnsw.repair import build_index
from memory_recall.indexing import queue_sql
from memory_recall.indexing.dry_run import dry_run
from memory_recall.indexing.pipeline import WritePace
from memory_recall.indexing.queue_sql import PendingQueue, PendingRow, WorkerShare, Written
from memory_recall.postgres.connection import Connection, DsnText
from memory_recall.schema.models_sql import active_model
from memory_recall.schema.table import describe
from memory_recall.schema.truncated import list_truncated
from memory_recall.status import inspect
from tests.integration.conftest import Database
from tests.integration.memory_recall.fake_embedder import FakeEmbedder
from tests.integration.memory_recall.workbench import INDEX, Workbench, share


@pytest.mark.promise("no-sensitive-text-to-a-model")
async def test_every_row_that_may_have_a_vector_gets_one_and_no_secret_is_sent(bench: Workbench) -> None:
    await bench.insert(*(f"text {number}" for number in range(100)))
    await bench.execute("INSERT INTO memories (content, is_sensitive) VALUES ('the canary secret', true)")
    await bench.execute("INSERT INTO memories (content, deleted_at) VALUES ('a deleted canary', now())")
    result = await bench.backfill()
    assert (result.tally.embedded, result.complete) == (100, True)
    assert await bench.problems() == []
    assert not any("canary" in text for text in bench.embedder.received)
    assert bench.ear.total == 100


async def test_a_second_backfill_embeds_nothing_again(bench: Workbench) -> None:
    await bench.insert(*(f"text {number}" for number in range(30)))
    await bench.backfill()
    await bench.insert("one more")
    assert (await bench.backfill()).tally.embedded == 1
    assert max(bench.embedder.received.values()) == 1


async def test_an_edited_row_is_embedded_again(bench: Workbench) -> None:
    await bench.insert("before", "other")
    await bench.backfill()
    await bench.execute("UPDATE memories SET content = 'after' WHERE content = 'before'")
    assert (await bench.backfill()).tally.embedded == 1
    assert await bench.problems() == []


async def test_rows_written_during_a_backfill_are_found_by_its_next_pass(bench: Workbench) -> None:
    await bench.insert(*(f"text {number}" for number in range(40)))
    bench.embedder.hold_after(1)
    task = asyncio.create_task(bench.backfill())
    await bench.embedder.held.wait()
    await bench.execute("UPDATE memories SET content = 'edited ' || id WHERE id <= 10")
    bench.embedder.release()
    await task
    assert await bench.problems() == []


async def test_four_workers_embed_no_row_twice(bench: Workbench) -> None:
    await bench.insert(*(f"text {number}" for number in range(200)))
    results = await asyncio.gather(*(bench.backfill(bench.with_options(share=share(index, 4))) for index in range(4)))
    assert sum(result.tally.embedded for result in results) == 200
    assert set(Counter(bench.embedder.received.values())) == {1}
    assert await bench.problems() == []


async def test_two_workers_on_one_partition_take_turns(bench: Workbench) -> None:
    await bench.insert(*(f"text {number}" for number in range(60)))
    bench.embedder.delay = 0.01
    results = await asyncio.gather(bench.backfill(), bench.backfill())
    assert sorted(result.tally.embedded for result in results) == [0, 60]
    assert max(bench.embedder.received.values()) == 1


async def test_an_embedder_of_another_model_is_refused_before_any_text_is_sent(bench: Workbench) -> None:
    await bench.insert("text")
    bench.embedder.model = "other"
    with pytest.raises(ModelMismatch, match="serves other"):
        await bench.backfill()
    bench.embedder.model, bench.embedder.dimensions = "tiny", 16
    with pytest.raises(DimensionMismatch):
        await bench.backfill()
    assert not bench.embedder.received


async def test_a_backfill_with_other_weights_than_the_first_is_refused(bench: Workbench) -> None:
    await bench.insert("text")
    await bench.backfill()
    async with bench.database.connection() as connection:
        model = (await inspect(connection, "memories")).active_model
    assert model is not None
    assert model.digest == "sha256:aa"
    bench.embedder.digest = "sha256:bb"
    with pytest.raises(ModelMismatch, match="sha256:bb"):
        await bench.backfill()


async def test_a_database_that_was_not_migrated_is_refused(database: Database) -> None:
    async with FakeEmbedder() as embedder:
        with pytest.raises(SchemaBehind, match="memory migrate"):
            await Workbench(database, embedder).backfill()


async def test_a_stopped_backfill_keeps_what_it_finished_and_the_next_one_does_the_rest(bench: Workbench) -> None:
    await bench.insert(*(f"text {number}" for number in range(200)))

    def behaviour(_texts: list[str]) -> float:
        bench.stop.set()
        return 0.01

    bench.embedder.behaviour = behaviour
    result = await bench.backfill()
    assert not result.complete
    assert result.tally.embedded == await bench.embedded() < 200
    bench.stop.clear()
    bench.embedder.behaviour = lambda _texts: None
    await bench.backfill()
    assert max(bench.embedder.received.values()) == 1
    assert await bench.problems() == []


@pytest.mark.finding("security S4")
async def test_a_stopped_worker_sends_no_text_that_it_has_only_read(bench: Workbench) -> None:
    """The operator stops a worker whose consent was withdrawn; only requests that were sent before may be answered."""
    await bench.insert(*(f"text {number}" for number in range(200)))
    requests_after_stop = 0

    def behaviour(_texts: list[str]) -> float:
        nonlocal requests_after_stop
        requests_after_stop += bench.stop.is_set()
        bench.stop.set()
        return 0.05

    bench.embedder.behaviour = behaviour
    await bench.backfill()
    assert requests_after_stop < bench.plan.options.concurrency


async def test_a_dry_run_measures_and_writes_nothing(bench: Workbench) -> None:
    await bench.insert(*(f"text {number}" for number in range(50)))
    async with bench.client() as client:
        result = await dry_run(DsnText(bench.database.dsn), client, bench.plan, limit=20, progress=bench.ear)
    assert (result.documents, result.failed) == (20, 0)
    assert result.seconds > 0
    assert await bench.embedded() == 0


async def test_a_rate_ceiling_spaces_the_batches(bench: Workbench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second and the third batch of eight wait for their turn, by a clock that stands still, before they go."""
    turns: list[tuple[float, bool]] = []

    class Clock:
        @staticmethod
        async def sleep(seconds: float) -> None:
            turns.append((seconds, len(bench.embedder.received) <= 8 * (len(turns) + 1)))

        @staticmethod
        def monotonic() -> float:
            return 1000.0

    monkeypatch.setattr(requests, "asyncio", Clock)
    monkeypatch.setattr(requests, "time", Clock)
    await bench.insert(*(f"text {number}" for number in range(24)))
    result = await bench.backfill(bench.with_options(rows_per_second=40.0))
    assert result.tally.embedded == 24
    assert turns == [(pytest.approx(8 / 40), True), (pytest.approx(16 / 40), True)]


async def test_a_backfill_beside_the_vector_index_stores_few_rows_at_a_time_and_pauses(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement inserts each row into the index's graph, and its rows stay locked until it ends."""
    await build_index(DsnText(bench.database.dsn), "memories", INDEX)
    await bench.insert(*(f"text {number}" for number in range(300)))
    write, rest = PendingQueue.write, WritePace.rest
    sizes, pauses = [], []

    async def slow_write(self: PendingQueue, connection: Connection, rows: list[PendingRow], *values: Any) -> Written:
        sizes.append(len(rows))
        await asyncio.sleep(0.1)  # so that further batches gather meanwhile
        return await write(self, connection, rows, *values)

    def noted_rest(self: WritePace, seconds: float) -> float:
        pauses.append(rest(self, seconds))
        return 0.0

    monkeypatch.setattr(PendingQueue, "write", slow_write)
    monkeypatch.setattr(WritePace, "rest", noted_rest)
    assert (await bench.backfill()).tally.embedded == 300
    assert 8 < max(sizes) <= 64
    assert min(pauses) >= 0.1


async def test_a_backfill_does_not_wait_for_a_count_that_takes_long(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number only shows how far the backfill has got."""
    monkeypatch.setattr(queue_sql, "_COUNTING_SECONDS", 0.05)
    await bench.insert(*(f"text {number}" for number in range(20)))
    await bench.execute("ANALYZE memories")
    async with bench.database.connection() as connection:
        table = await describe(connection, "memories")
        queue = PendingQueue(table, (await active_model(connection, table)).id)
        monkeypatch.setattr(queue, "_count", "SELECT 3 AS pending FROM pg_sleep(30) WHERE $1::bigint < $2::bigint")
        assert await queue.count(connection, WorkerShare(0, 2)) == 10


async def test_the_counts_of_rows_add_up_to_their_total(bench: Workbench) -> None:
    await bench.insert("a", "b", "c", " ")
    await bench.execute("INSERT INTO memories (content, is_sensitive) VALUES ('s', true)")
    await bench.execute("INSERT INTO memories (content, is_sensitive, deleted_at) VALUES ('d', true, now())")
    bench.embedder.behaviour = lambda texts: (422, {}, b"{}") if "refused" in texts else None
    await bench.insert("refused")
    await bench.backfill()
    await bench.insert("later")
    async with bench.database.connection() as connection:
        rows = (await inspect(connection, "memories")).rows
    assert (rows.total, rows.embedded, rows.pending, rows.sensitive, rows.quarantined, rows.blank) == (
        7, 3, 1, 1, 1, 1,
    )  # fmt: skip


async def test_rows_with_negative_ids_belong_to_a_share_of_a_backfill(bench: Workbench) -> None:
    await bench.execute("INSERT INTO memories (id, content) SELECT n, 'text ' || n FROM generate_series(-5, 5) n")
    for index in range(3):
        await bench.backfill(bench.with_options(share=share(index, 3)))
    assert await bench.embedded() == 11


@pytest.mark.parametrize("indexed", [True, False])
async def test_a_page_of_long_texts_ends_before_they_exceed_eight_mebibytes(bench: Workbench, indexed: bool) -> None:
    """Whatever the texts are, what a worker has in memory is bounded, and page by page all rows are read."""
    sizes = [500_000, 500_000, 20 << 20, 0, 20 << 20, *[3 << 20] * 3]
    for size in sizes:
        await bench.execute(f"INSERT INTO memories (content) VALUES (repeat('x', {size}))")
    pages: list[list[int]] = []
    async with bench.database.connection() as connection:
        table = await describe(connection, "memories")
        queue = PendingQueue(table, (await active_model(connection, table)).id, indexed=indexed)
        page = await queue.page(connection, None, WorkerShare(), 100)
        while page.last is not None:
            pages.append([int(row.id) for row in page.rows])
            page = await queue.page(connection, page.last, WorkerShare(), 100)
    assert pages == [[1, 2], [3], [4, 5], [6, 7], [8]]


async def test_of_a_text_that_no_model_reads_to_its_end_a_million_characters_are_sent(bench: Workbench) -> None:
    """One that did not fit into the worker's memory would end each worker that reads it; the cut is recorded."""
    await bench.execute("INSERT INTO memories (content) VALUES (repeat('é', 1000001)), (repeat('é', 1000000))")
    result = await bench.backfill()
    assert (result.tally.embedded, result.tally.truncated) == (2, 1)
    assert bench.embedder.received == {"é" * 1_000_000: 2}
    async with bench.database.connection() as connection:
        assert (await list_truncated(connection, await describe(connection, "memories"), limit=10)).ids == [1]
