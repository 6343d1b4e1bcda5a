"""A swap ends with the next model's vectors where the active one's were, whatever happens on the way."""

import asyncio
from collections.abc import Callable
from typing import Any

import asyncpg
import pytest

from memory_recall.errors import LockNotAvailable, ModelMismatch, NoSwap, SchemaUnsupported, SwapInProgress
from memory_recall.hnsw import build, repair
from memory_recall.hnsw.build import BuildSettings, ServerResources, build_settings
from memory_recall.hnsw.definition import inspect_index
from memory_recall.hnsw.repair import IndexParameters
from memory_recall.indexing import leases_sql
from memory_recall.indexing.pipeline import BatchLimits
from memory_recall.indexing.queue_sql import PendingQueue, WorkerShare
from memory_recall.postgres.connection import DsnText, connect
from memory_recall.schema.migrate import MigrationRequest, migrate
from memory_recall.schema.revisions import require_schema
from memory_recall.schema.table import ACTIVE, STANDBY, describe
from memory_recall.status import inspect
from memory_recall.swap import state_sql
from memory_recall.swap.gate import Scores, Verdict, judge
from memory_recall.swap.state_sql import SwapRecord
from tests.integration.memory_recall.swap.conftest import SwapBench
from tests.integration.memory_recall.test_usual_cosine import nearest_in_the_median

_HEAP_ONLY_UPDATES = "SELECT n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'memories'"


def verdict(lost: int) -> Verdict:
    """Return the gate's verdict on a model that loses as many of a hundred answers and wins one."""
    active = [Scores(1.0, 1.0)] * 99 + [Scores(0.0, 0.0)]
    following = [Scores(0.0, 0.0)] * lost + [Scores(1.0, 1.0)] * (100 - lost)
    return judge(active, following, max_drop=0.05)


async def test_a_swap_replaces_every_vector_and_keeps_the_old_ones_for_a_rollback(swaps: SwapBench) -> None:
    await swaps.work.execute("INSERT INTO memories (content, is_sensitive) VALUES ('the canary secret', true)")
    swap = await swaps.swap()
    assert swap.stage == "flipped"
    roles = await swaps.roles()
    assert (roles.active.name, roles.active.digest, roles.next) == ("small", "sha256:bb", None)
    assert await swaps.problems() == []
    assert await swaps.work.value("SELECT count(embedding_standby) FROM memories") == 40
    connection = await connect(swaps.source)
    facts = await inspect(connection, "memories")
    connection.terminate()
    assert (facts.index.name, facts.index.valid) == ("idx_memories_embedding", True)
    assert not any("canary" in text for text in swaps.following.received)


async def test_a_swap_ends_where_all_tables_are_published(swaps: SwapBench) -> None:
    """Postgres refuses updates and deletions of a published table that has no replica identity."""
    superuser = await asyncpg.connect(swaps.work.database.superuser_dsn)
    await superuser.execute("CREATE PUBLICATION everything FOR ALL TABLES")
    await superuser.close()
    assert (await swaps.swap()).stage == "flipped"


async def test_the_next_model_s_usual_cosine_is_known_before_the_flip(swaps: SwapBench) -> None:
    """Its vectors lie differently, so that of the active model says nothing."""
    recorded = "SELECT usual_cosine FROM memory_index_models WHERE name = '{}'"
    await swaps.work.backfill()
    await swaps.swap(flip=False)
    connection = await connect(swaps.source)
    texts = [row["content"] for row in await connection.fetch("SELECT content FROM memories")]
    active, following = [await connection.fetchval(recorded.format(name)) for name in ("tiny", "small")]
    await connection.close()
    assert active == pytest.approx(nearest_in_the_median(texts), abs=2e-3)
    assert following == pytest.approx(nearest_in_the_median(texts, swaps.following.salt), abs=2e-3)
    assert abs(active - following) > 5e-3


async def test_the_next_model_s_index_gets_the_memory_that_its_own_vectors_need(
    swaps: SwapBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The active model has shorter vectors, and fewer of them."""
    chosen: list[dict[str, Any]] = []

    def choose(server: ServerResources, **needs: Any) -> BuildSettings:
        chosen.append(needs)
        return build_settings(server, **needs)

    monkeypatch.setattr(build, "build_settings", choose)
    await swaps.work.execute("UPDATE memories SET embedding = NULL WHERE id % 2 = 0")
    swaps.following.dimensions = 12
    await swaps.swap(flip=False)
    assert [(needs["rows"], needs["dimensions"]) for needs in chosen] == [(40, 12)]


async def test_a_model_of_other_dimensions_becomes_active(swaps: SwapBench) -> None:
    swaps.following.dimensions = 12
    assert (await swaps.swap()).stage == "flipped"
    assert await swaps.problems() == []
    assert await swaps.work.value("SELECT vector_dims(embedding) FROM memories LIMIT 1") == 12


async def test_rows_without_a_text_are_no_reason_to_refuse_the_next_model(swaps: SwapBench) -> None:
    """No model could embed them, however many there are."""
    await swaps.work.value("INSERT INTO memories (content) SELECT '  ' FROM generate_series(1, 40) RETURNING 1")
    await swaps.work.backfill()
    swap = await swaps.swap(flip=False)
    assert swap.stage == "ready", swap.message
    connection = await connect(swaps.source)
    fill = await state_sql.read_fill(connection, await require_schema(connection, "memories"))
    await connection.close()
    assert (fill.pending, fill.quarantined, fill.blank) == (0, 0, 40)


async def test_a_worse_model_is_refused_with_the_numbers_and_the_active_one_stays(swaps: SwapBench) -> None:
    async def measure(_swap: object, _retrying: object) -> Verdict:
        return verdict(40)

    swap = await swaps.swap(measure=measure)
    assert swap.stage == "refused"
    assert "active 0.990, next 0.600" in swap.message
    assert swap.gate is not None
    assert (swap.gate["outcome"], swap.gate["reason"], swap.undecided) == ("refused", "RecallDropped", False)
    assert (await swaps.roles()).active.name == "tiny"
    assert await swaps.problems() == []


async def test_a_swap_whose_gate_cannot_decide_stops_before_the_flip(swaps: SwapBench) -> None:
    async def measure(_swap: object, _retrying: object) -> Verdict:
        return verdict(5)

    swap = await swaps.swap(measure=measure)
    assert (swap.stage, swap.undecided) == ("refused", True)
    assert "more labelled questions would decide" in swap.message
    assert (await swaps.roles()).active.name == "tiny"
    assert await swaps.problems() == []


async def test_a_refused_swap_may_be_measured_again_and_embeds_nothing_again(swaps: SwapBench) -> None:
    lost = iter([40, 1])

    async def measure(_swap: object, _retrying: object) -> Verdict:
        return verdict(next(lost))

    await swaps.swap(measure=measure)
    assert (await swaps.swap(measure=measure)).stage == "flipped"
    assert max(swaps.following.received.values()) == 1


async def test_a_swap_without_flip_stays_ready_until_the_flip_is_requested(swaps: SwapBench) -> None:
    assert (await swaps.swap(flip=False)).stage == "ready"
    assert (await swaps.roles()).active.name == "tiny"
    assert (await swaps.swap()).stage == "flipped"
    assert await swaps.problems() == []


async def test_a_rollback_embeds_only_what_changed_since_the_flip(swaps: SwapBench) -> None:
    await swaps.swap()
    swaps.work.embedder.received.clear()
    await swaps.work.execute("UPDATE memories SET content = 'edited' WHERE id = 3")
    assert (await swaps.swap(back=True)).stage == "flipped"
    assert (await swaps.roles()).active.name == "tiny"
    assert swaps.work.embedder.received.total() == 1
    assert await swaps.problems() == []


@pytest.mark.parametrize("named", [False, True])
async def test_a_rollback_is_not_refused_for_rows_that_the_previous_model_could_never_embed(
    swaps: SwapBench, named: bool
) -> None:
    """They were without a vector while it was active, and are so again."""
    swaps.work.embedder.unusable = lambda text: text.startswith("odd")
    await swaps.work.insert("odd one", "odd two")
    await swaps.work.backfill()
    assert await swaps.work.embedded() == 40
    assert (await swaps.swap()).stage == "flipped"
    previous = swaps.target(name="tiny", digest="sha256:aa")
    back = await (swaps.swap(target=previous) if named else swaps.swap(back=True))
    assert (back.stage, back.message) == ("flipped", "")
    assert (await swaps.roles()).active.name == "tiny"
    assert await swaps.work.embedded() == 40


async def test_a_swap_to_the_previous_model_is_a_rollback(swaps: SwapBench) -> None:
    """This happens when a person sets the specification back."""
    await swaps.swap()
    swaps.work.embedder.received.clear()
    tiny = swaps.target(name="tiny", digest="sha256:aa")
    assert (await swaps.swap(target=tiny)).stage == "flipped"
    assert swaps.work.embedder.received.total() == 0
    assert await swaps.problems() == []


async def test_a_rollback_needs_a_flipped_swap(swaps: SwapBench) -> None:
    with pytest.raises(NoSwap):
        await swaps.swap(back=True)
    await swaps.swap()
    await swaps.end("finished")
    with pytest.raises(NoSwap):
        await swaps.swap(back=True)
    left = "SELECT count(*) FROM pg_attribute WHERE attrelid = 'memories'::regclass AND attname = 'embedding_standby'"
    assert await swaps.work.value(left) == 0
    assert await swaps.problems() == []


async def test_an_aborted_swap_leaves_the_table_as_it_was(swaps: SwapBench) -> None:
    before = await swaps.work.value("SELECT array_agg(tgname ORDER BY tgname)::text FROM pg_trigger")
    await swaps.swap(flip=False)
    await swaps.end("aborted")
    assert (await swaps.roles()).next is None
    assert await swaps.work.value("SELECT array_agg(tgname ORDER BY tgname)::text FROM pg_trigger") == before
    assert await swaps.problems() == []


async def test_two_processes_cannot_carry_out_a_swap_at_once(swaps: SwapBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases_sql, "_LOST_SESSION_SECONDS", 0.1)
    swaps.following.hold_after(0)
    first = asyncio.create_task(swaps.swap())
    await swaps.following.held.wait()
    with pytest.raises(SwapInProgress):
        await swaps.swap()
    swaps.following.release()
    assert (await first).stage == "flipped"


async def test_a_swap_goes_on_once_the_session_of_a_killed_process_has_ended(swaps: SwapBench) -> None:
    """Postgres notices after some seconds that a client is gone; the next process said SwapInProgress until then."""
    async with swaps.work.database.connection() as left, swaps.work.database.connection() as connection:
        table = await describe(left, "memories")
        await leases_sql.lease_swap(left, table)
        waiting = asyncio.create_task(leases_sql.lease_swap(connection, table))
        done, _ = await asyncio.wait([waiting], timeout=0.7)
        assert not done
        await left.close()
        await waiting


async def test_a_swap_to_a_third_model_is_refused_while_one_is_open(swaps: SwapBench) -> None:
    await swaps.swap(flip=False)
    with pytest.raises(SwapInProgress, match="small"):
        await swaps.swap(target=swaps.target(name="third", digest="sha256:cc"))


async def test_a_swap_that_goes_on_with_an_embedder_at_another_address_asks_and_records_no_former_one(
    swaps: SwapBench,
) -> None:
    await swaps.swap(flip=False)
    await swaps.work.execute("UPDATE memory_index_models SET embedder_url = 'http://127.0.0.1:9' WHERE name = 'small'")
    assert (await swaps.swap()).stage == "flipped"
    assert (await swaps.roles()).active.embedder_url == swaps.following.url


async def test_a_swap_to_the_active_model_is_refused(swaps: SwapBench) -> None:
    with pytest.raises(ModelMismatch):
        await swaps.swap(target=swaps.target(name="tiny", digest="sha256:aa"))


async def test_filling_leaves_most_rows_out_of_the_active_vector_index(swaps: SwapBench) -> None:
    """A new version of a row goes into every index, unless it stays in its block as a heap-only tuple."""
    swaps.work.plan = swaps.work.with_options(limits=BatchLimits(tokens=100_000, rows=64))
    await swaps.work.insert(*(f"number {number} " + "of a longer memory " * 20 for number in range(800)))
    await swaps.work.backfill()
    await swaps.work.execute("VACUUM FULL memories")
    before = await swaps.work.value(_HEAP_ONLY_UPDATES)
    assert (await swaps.swap(flip=False)).stage == "ready"
    assert await swaps.work.value("SELECT count(embedding_standby) FROM memories") == 840
    async with asyncio.timeout(30):  # for the server to add up what its processes have counted
        while await swaps.work.value(_HEAP_ONLY_UPDATES) - before < 0.7 * 840:  # noqa: ASYNC110  (the server changes)
            await asyncio.sleep(0.1)
    assert await swaps.problems() == []


async def test_a_row_that_was_delayed_while_the_column_filled_is_filled_later(swaps: SwapBench) -> None:
    """There is no index of the queue yet, so a page may hold no row that is due and others may follow it."""
    failures = iter([(503, {}, b"{}")])
    swaps.following.behaviour = lambda texts: next(failures, None) if "text 7" in texts else None
    assert (await swaps.swap()).stage == "flipped"
    assert await swaps.problems() == []


async def test_a_worker_of_the_former_model_reads_no_row_after_a_flip(swaps: SwapBench) -> None:
    """It would embed them in vain: the column that it fills is another model's by now."""
    await swaps.swap(flip=False)
    await swaps.work.execute("UPDATE memories SET content = 'edited' WHERE id = 3")
    connection = await connect(swaps.source)
    try:
        table, swap = await require_schema(connection, "memories"), await swaps.latest()
        assert swap is not None
        queue = PendingQueue(table, swap.to_model.id, STANDBY)
        assert [row.id for row in (await queue.page(connection, 0, WorkerShare(), 10)).rows] == [3]
        await state_sql.flip(connection, table, swap, give_up_after=10)
        assert (await queue.page(connection, 0, WorkerShare(), 10)).rows == []
    finally:
        connection.terminate()


async def test_a_backfill_of_the_former_model_ends_with_an_error_after_a_flip(swaps: SwapBench) -> None:
    """What it embeds is refused from then on, and a row that it cannot finish would be pending for ever."""
    await swaps.swap(flip=False)
    await swaps.work.execute("UPDATE memories SET embedding = NULL WHERE id % 2 = 0")
    swaps.work.embedder.hold_after(0)
    backfill = asyncio.create_task(swaps.work.backfill())
    await swaps.work.embedder.held.wait()
    assert (await swaps.swap()).stage == "flipped"
    swaps.work.embedder.release()
    with pytest.raises(ModelMismatch, match="took the place of tiny"):
        await asyncio.wait_for(backfill, 30)
    assert await swaps.problems() == []


async def test_rows_that_change_while_the_column_is_filled_get_the_right_vectors(swaps: SwapBench) -> None:
    swaps.following.hold_after(2)
    task = asyncio.create_task(swaps.swap())
    await swaps.following.held.wait()
    await swaps.work.execute("UPDATE memories SET content = 'edited ' || id WHERE id % 3 = 0")
    await swaps.work.execute("UPDATE memories SET is_sensitive = true WHERE id % 5 = 0")
    await swaps.work.execute("UPDATE memories SET deleted_at = now() WHERE id % 7 = 0")
    await swaps.work.execute("DELETE FROM memories WHERE id % 11 = 0")
    await swaps.work.insert("new")
    swaps.following.release()
    assert (await task).stage == "flipped"
    assert await swaps.problems(complete=False) == []


async def test_a_vector_that_an_api_writes_during_a_swap_is_computed_again(swaps: SwapBench) -> None:
    await swaps.swap()
    old = "(SELECT embedding_standby FROM memories WHERE id = 1)"  # of the model that was active a moment ago
    await swaps.work.execute(f"INSERT INTO memories (content, embedding) VALUES ('written late', {old})")
    await swaps.work.execute(f"UPDATE memories SET embedding = {old} WHERE id = 2")
    assert await swaps.problems(complete=False) == []
    assert await swaps.work.value("SELECT count(*) FROM memories WHERE embedding IS NULL") == 2


async def test_rows_that_the_next_model_refuses_stop_the_swap(swaps: SwapBench) -> None:
    swaps.following.behaviour = lambda texts: (422, {}, b"{}") if "text 7" in texts else None
    swap = await swaps.swap()
    assert (swap.stage, "refused 1 of 40 rows" in swap.message) == ("refused", True)


async def test_writers_are_not_blocked_while_the_flip_waits_for_a_long_transaction(swaps: SwapBench) -> None:
    """The writer in the middle would wait for ever if the flip queued for its lock without giving way."""
    await swaps.swap(flip=False)
    async with swaps.work.database.connection() as long, swaps.work.database.connection() as writer:
        await long.execute("BEGIN")
        await long.fetchval("SELECT count(*) FROM memories")
        await writer.execute("SET lock_timeout = '5s'")
        flip = asyncio.create_task(swaps.swap())
        await swaps.work.until_locked_out(flip, "AccessExclusiveLock")
        for _ in range(10):
            await writer.execute("UPDATE memories SET importance = 0.7 WHERE id = 1")
        assert not flip.done()
        await long.execute("COMMIT")
        assert (await flip).stage == "flipped"


async def test_readers_are_not_blocked_while_the_flip_waits_for_a_vacuum(swaps: SwapBench) -> None:
    """A vacuum of a vector index takes minutes; a reader that queued behind the flip would give up here."""
    await swaps.swap(flip=False)
    async with swaps.work.database.connection() as vacuum, swaps.work.database.connection() as reader:
        await vacuum.execute("BEGIN")
        await vacuum.execute("LOCK TABLE memories IN SHARE UPDATE EXCLUSIVE MODE")  # as VACUUM does
        await reader.execute("SET lock_timeout = '20ms'")
        flip = asyncio.create_task(swaps.swap())
        await swaps.work.until_locked_out(flip, "ShareUpdateExclusiveLock")
        for _ in range(10):
            await reader.fetchval("SELECT count(*) FROM memories")
        assert not flip.done()
        await vacuum.execute("COMMIT")
        assert (await flip).stage == "flipped"


@pytest.mark.parametrize("change", ["adding the column", "the flip"])
async def test_a_swap_waits_no_longer_for_its_lock_than_it_may(swaps: SwapBench, change: str) -> None:
    """And another run goes on from there."""
    if change == "the flip":
        await swaps.swap(flip=False)
    async with swaps.work.database.connection() as long:
        await long.execute("BEGIN")
        await long.fetchval("SELECT count(*) FROM memories")
        with pytest.raises(LockNotAvailable, match="stayed in use"):
            await asyncio.wait_for(swaps.swap(lock_seconds=0.1), timeout=15)
        await long.execute("COMMIT")
    assert (await swaps.swap()).stage == "flipped"


@pytest.mark.parametrize("requests", [0, 1, 4])
async def test_a_cancelled_swap_process_continues_when_started_again(swaps: SwapBench, requests: int) -> None:
    swaps.following.hold_after(requests)
    task = asyncio.create_task(swaps.swap())
    await swaps.following.held.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    swaps.following.release()
    assert (await swaps.swap()).stage == "flipped"
    assert await swaps.problems() == []


async def test_the_column_of_a_swap_is_ours_until_the_swap_has_ended(
    swaps: SwapBench, request_for: Callable[..., MigrationRequest]
) -> None:
    source = DsnText(swaps.work.database.dsn)
    await swaps.swap(flip=False)
    await migrate(source, request_for())
    await swaps.swap()
    await migrate(source, request_for(model="small"))
    await swaps.end("finished")
    await swaps.work.execute("ALTER TABLE memories ADD embedding_standby text")
    with pytest.raises(SchemaUnsupported, match="no swap has added it"):
        await migrate(source, request_for(model="small"))


async def test_a_flip_waits_until_a_rebuilt_index_has_taken_its_place(
    swaps: SwapBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the names would be exchanged between the build and the drop of the old index, which is then the new one."""
    await swaps.swap(flip=False)
    flips: list[asyncio.Task[SwapRecord]] = []
    create = repair.create_index

    async def create_and_flip(*given: Any) -> None:
        await create(*given)
        flips.append(asyncio.create_task(swaps.swap()))
        await asyncio.wait(flips, timeout=2)

    monkeypatch.setattr(repair, "create_index", create_and_flip)
    await repair.build_index(swaps.source, "memories", IndexParameters(8, 40))
    assert (await flips[0]).stage == "flipped"
    async with swaps.work.database.connection() as connection:
        table = await require_schema(connection, "memories")
        active, standby = [await inspect_index(connection, table, column) for column in (ACTIVE, STANDBY)]
    assert (active.valid, active.ours, active.m) == (True, True, IndexParameters().m)
    assert (standby.valid, standby.ours, standby.m) == (True, True, 8)


async def test_a_swap_does_not_start_while_a_view_shows_the_vectors(swaps: SwapBench) -> None:
    """After the flip it would show the former model's."""
    await swaps.work.execute("CREATE VIEW read AS SELECT * FROM memories")
    with pytest.raises(SchemaUnsupported, match=r"view public\.read"):
        await swaps.swap()
    assert (await swaps.roles()).next is None
    await swaps.work.execute("DROP VIEW read")
    assert (await swaps.swap()).stage == "flipped"


async def test_a_swap_can_be_taken_back_but_not_finished_while_a_view_shows_the_former_vectors(
    swaps: SwapBench,
) -> None:
    swap = await swaps.swap()
    await swaps.work.execute("CREATE VIEW read AS SELECT id, embedding_standby FROM memories")
    connection = await connect(swaps.source)
    table = await require_schema(connection, "memories")
    with pytest.raises(SchemaUnsupported, match=r"view public\.read"):
        await state_sql.end(connection, table, swap, "finished", give_up_after=1)
    connection.terminate()
    assert (await swaps.swap(back=True)).stage == "flipped"
