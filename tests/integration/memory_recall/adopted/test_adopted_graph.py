"""The concept graph of another program's table follows its rows, whatever its key is."""

import pytest

from memory_recall.graph import disable, enable, graph_state, pause, switching
from memory_recall.graph.neighbourhood import read_neighbourhood
from memory_recall.graph.sweeping import sweep_links
from memory_recall.postgres.connection import opened
from tests.integration.memory_recall.adopted.conftest import BOILER, KETTLE, STOVE, StoreBench
from tests.integration.memory_recall.graph.workbench import fill


async def named(adopted: StoreBench, concept: str) -> list[object]:
    """The ids of the memories that have a concept, in the order in which they are shown."""
    async with opened(adopted.source, "test") as connection:
        found = await read_neighbourhood(connection, await adopted.table(), concept, user=None)
    return [one.id for one in found.newest]


async def test_a_graph_is_filled_in_batches_and_follows_edits_deletions_and_secrets(
    adopted: StoreBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switching, "_BATCH", 2)
    boiler, kettle, stove = [await adopted.add(text) for text in (BOILER, KETTLE, STOVE)]
    await adopted.add("Nothing else.")
    async with opened(adopted.source, "test") as connection:
        table = await adopted.table()
        assert await enable(connection, table)
        assert await fill(connection, table) == 4
        state = await graph_state(connection, table)
        assert (state.filled, state.differences, state.memories) == (True, "", 4)
        assert not await enable(connection, table), "the catalog prints the rules as they were written"
        assert set(await named(adopted, "Marit")) == {boiler, stove}
        await connection.execute(adopted.store.edit, stove, KETTLE)
        await fill(connection, table)
        assert set(await named(adopted, "Tobin")) == {kettle, stove}
        for change in filter(None, (adopted.store.delete, adopted.store.hide)):
            await connection.execute(change, boiler)
            assert await named(adopted, "Marit") == []
        await connection.execute(f"DELETE FROM {table.qualified}")
        assert (await graph_state(connection, table)).links == 0
        await pause(connection, table)
        await disable(connection, table)
        assert not (await graph_state(connection, table)).exists


async def test_links_that_no_rule_removed_are_swept_page_by_page(
    adopted: StoreBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory_recall.graph.sweeping._PAGE", 2)
    change = adopted.store.delete or adopted.store.hide
    if change is None:
        return  # no row of this store can ever be deleted or sensitive
    ids = [await adopted.add(f"{BOILER} {number}") for number in range(5)]
    async with opened(adopted.source, "test") as connection:
        table = await adopted.table()
        await enable(connection, table)
        await fill(connection, table)
        await connection.execute(f"ALTER TABLE {table.qualified} DISABLE TRIGGER USER")
        for one in ids:
            await connection.execute(change, one)
        assert (await graph_state(connection, table)).links > 0
        last = await sweep_links(connection, table, None)
        pages = 1
        while last is not None:
            last, pages = await sweep_links(connection, table, last), pages + 1
        assert (pages, (await graph_state(connection, table)).links) == (4, 0)


async def test_the_newest_memories_of_a_concept_are_those_with_the_latest_times_where_ids_do_not_count_up(
    adopted: StoreBench,
) -> None:
    table = await adopted.table()
    if table.key.is_integer or table.names.of("created_at")[0].path or "created_at" not in table.columns:
        return  # ids count up, or the store's own statement gives every memory one time
    ids = [await adopted.add(f"{BOILER} {number}") for number in range(6)]
    async with opened(adopted.source, "test") as connection:
        await enable(connection, table)
        await fill(connection, table)
    assert await named(adopted, "Marit") == ids[::-1]
