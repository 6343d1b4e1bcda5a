"""Of texts that are longer than the model's window it is recorded which they are, for as long as it is true."""

from memory_recall import EVERYONE
from memory_recall.evaluation.evaluate import Question
from memory_recall.postgres.connection import opened
from memory_recall.postgres.session import opened_session
from memory_recall.schema.truncated import TRUNCATED, TruncatedTexts, list_truncated, sweep_truncated
from memory_recall.status import inspect
from memory_recall.swap import state_sql
from tests.integration.memory_recall.adopted.conftest import BOILER, KETTLE, StoreBench, only
from tests.integration.memory_recall.adopted.test_adopted_swap import swapped
from tests.integration.memory_recall.fake_embedder import FakeEmbedder
from tests.integration.memory_recall.workbench import DIMENSIONS

LONG = f"{BOILER} {KETTLE} " * 10
WINDOW = 150  # characters; more than the short texts have with a title


async def counted(adopted: StoreBench) -> int:
    """What the status counts."""
    async with opened(adopted.source, "test") as connection:
        return (await inspect(connection, adopted.store.table)).rows.truncated


async def listed(adopted: StoreBench, limit: int = 100) -> TruncatedTexts:
    async with opened(adopted.source, "test") as connection:
        return await list_truncated(connection, await adopted.table(), limit=limit)


async def records(adopted: StoreBench) -> int:
    """How many records there are, of all models."""
    found: int = await adopted.value(f"SELECT count(*) FROM {(await adopted.table()).own(TRUNCATED)}")
    return found


async def sweep(adopted: StoreBench) -> None:
    """What the sync worker does once a minute."""
    async with opened_session(adopted.source, "test") as connection:
        await sweep_truncated(connection, await adopted.table())


async def test_the_rows_of_texts_beyond_the_window_are_counted_and_listed(adopted: StoreBench) -> None:
    adopted.work.embedder.window = WINDOW
    long = {await adopted.add(LONG) for _ in range(3)}
    await adopted.add(BOILER)
    assert (await adopted.work.backfill()).tally.truncated == 3
    assert await counted(adopted) == 3
    assert await listed(adopted) == TruncatedTexts(sorted(long), 0)
    assert await listed(adopted, limit=1) == TruncatedTexts(sorted(long)[:1], 2)


async def test_a_record_goes_when_its_text_changes_or_may_not_be_used(adopted: StoreBench) -> None:
    """A text that is shortened, made secret, marked as deleted or deleted leaves no record; another stays."""
    store, table = adopted.store, await adopted.table()
    adopted.work.embedder.window = WINDOW
    kept, edited, hidden, marked, deleted = [await adopted.add(LONG) for _ in range(5)]
    await adopted.work.backfill()
    gone = f"DELETE FROM {store.relation} WHERE {table.key.shown(table.row().id)} = $1"
    await adopted.execute(store.edit, edited, KETTLE)
    for change, row in ((store.hide, hidden), (store.delete, marked), (None, deleted)):
        await adopted.execute(change or gone, row)
    await adopted.work.backfill()
    assert await listed(adopted) == TruncatedTexts([kept], 0)
    assert await counted(adopted) == await records(adopted) == 1
    await adopted.execute(f"TRUNCATE {store.relation}")
    assert await records(adopted) == 0


@only("documents")
async def test_nothing_is_recorded_of_a_text_that_a_wider_window_takes(adopted: StoreBench) -> None:
    adopted.work.embedder.window = WINDOW
    await adopted.add(LONG)
    await adopted.work.backfill()
    assert await records(adopted) == 1
    adopted.work.embedder.window = None
    await adopted.execute(f"UPDATE {adopted.store.relation} SET {adopted.store.names.embedding} = NULL")
    await adopted.work.backfill()
    assert await records(adopted) == 0


@only("documents")
async def test_each_model_of_a_swap_has_its_own_window(adopted: StoreBench) -> None:
    adopted.work.embedder.window = WINDOW
    long = await adopted.add(LONG)
    await adopted.work.backfill()
    await adopted.index()
    async with FakeEmbedder(dimensions=DIMENSIONS, model="small", digest="sha256:bb") as following:
        following.salt = "next:"
        asked = Question("q", "boiler", "all", user_id=EVERYONE, relevant=frozenset({long}))
        assert (await swapped(adopted, following, questions=[asked])).stage == "flipped"
        assert await counted(adopted) == 0
        await sweep(adopted)
        assert (await swapped(adopted, following, questions=[], back=True)).stage == "flipped"
    assert await listed(adopted) == TruncatedTexts([long], 0)


@only("documents")
async def test_the_records_of_a_model_go_once_the_end_of_a_swap_has_dropped_its_vectors(adopted: StoreBench) -> None:
    adopted.work.embedder.window = WINDOW
    long = await adopted.add(LONG)
    await adopted.work.backfill()
    await adopted.index()
    async with FakeEmbedder(dimensions=DIMENSIONS, model="small", digest="sha256:bb") as following:
        asked = Question("q", "boiler", "all", user_id=EVERYONE, relevant=frozenset({long}))
        assert (await swapped(adopted, following, questions=[asked])).stage == "flipped"
    await sweep(adopted)
    assert await records(adopted) == 1
    async with opened_session(adopted.source, "test") as connection:
        table = await adopted.table()
        swap = await state_sql.latest(connection, table)
        assert swap is not None
        await state_sql.end(connection, table, swap, "finished", give_up_after=10)
    await sweep(adopted)
    assert await records(adopted) == 0
