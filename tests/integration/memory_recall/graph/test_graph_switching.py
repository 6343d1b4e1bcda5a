"""The concept graph is enabled, paused, restored and disabled at any time."""

import pytest

from memory_recall.graph import GraphState, disable, enable, graph_state, pause
from memory_recall.schema.graph_relations import drop_graph
from memory_recall.schema.table import describe
from tests.integration.memory_recall.graph.workbench import enabled, expected, fill, links
from tests.integration.memory_recall.workbench import Workbench


async def test_enabling_queues_every_memory_that_may_be_shared(bench: Workbench) -> None:
    """Sensitive and deleted memories are not queued, and enabling again changes nothing."""
    await bench.insert("Marit restarted nas-01.", "Kestrel Lane floods.")
    await bench.execute("INSERT INTO memories (content, is_sensitive) VALUES ('a secret', true)")
    await bench.execute("INSERT INTO memories (content, deleted_at) VALUES ('a mistake', now())")
    async with bench.database.connection() as connection:
        table = await describe(connection, "memories")
        assert await enable(connection, table)
        state = await graph_state(connection, table)
        assert (state.enabled, state.filled, state.pending, state.differences) == (True, False, 2, "")
        assert not await enable(connection, table)
        assert (await graph_state(connection, table)).pending == 2


async def test_disabling_leaves_nothing(bench: Workbench) -> None:
    """Tables, triggers and functions of the graph are gone, and enabling works again."""
    async with bench.database.connection() as connection:
        table = await describe(connection, "memories")
        before = await _objects(bench)
        await enable(connection, table)
        assert await _objects(bench) != before
        await disable(connection, table)
        await disable(connection, table)
        assert await _objects(bench) == before
        assert not (await graph_state(connection, table)).enabled
        assert await enable(connection, table)


async def test_a_paused_graph_still_loses_the_links_of_what_becomes_sensitive(bench: Workbench) -> None:
    """Nothing is queued then, and enabling reads every memory anew."""
    await bench.insert("Marit restarted nas-01.", "Kestrel Lane floods.")
    async with bench.database.connection() as connection:
        table = await describe(connection, "memories")
        await enable(connection, table)
        await bench.execute("TRUNCATE memory_graph_changes; INSERT INTO memory_concepts VALUES (1, 7), (2, 7)")
        await pause(connection, table)
        await bench.execute("UPDATE memories SET is_sensitive = true WHERE id = 1")
        assert await bench.value("SELECT array_agg(memory_id) FROM memory_concepts") == [2]
        assert not (await graph_state(connection, table)).enabled
        assert await enable(connection, table)
        assert (await graph_state(connection, table)).pending == 1


async def test_a_graph_that_was_paused_has_what_was_changed_meanwhile_and_nothing_of_what_became_sensitive(
    bench: Workbench,
) -> None:
    """So it is when a MemoryIndex is deleted and another takes up its table."""
    table = await enabled(bench, "Marit restarted nas-01.", "Kestrel Lane floods.", "Tobin sold the boat.", "Old news.")
    async with bench.database.connection() as connection:
        await pause(connection, table)
        await bench.execute("UPDATE memories SET is_sensitive = true WHERE id = 1")
        await bench.execute("UPDATE memories SET content = 'Kestrel Lane is dry.' WHERE id = 2")
        await bench.execute("UPDATE memories SET deleted_at = now() WHERE id = 3")
        await bench.insert("Marit called.")
        assert set(await links(connection)) == {4}, "the rules that remove links go on"
        assert await bench.value("SELECT count(*) FROM memory_graph") == 0, "so no recall uses what is left"
        assert await bench.value("SELECT to_regclass('memory_graph_changes')") is None, "so nothing grows"
        assert await enable(connection, table)
        assert await fill(connection, table) == 3
        found = await links(connection)
        assert found == await expected(connection)
        assert set(found) == {2, 4, 5}
        assert (await graph_state(connection, table)).filled


async def test_the_state_tells_a_graph_that_is_kept_from_one_that_is_gone(bench: Workbench) -> None:
    await bench.insert("Marit restarted nas-01.", "Kestrel Lane floods.")
    async with bench.database.connection() as connection:
        table = await describe(connection, "memories")
        assert await graph_state(connection, table) == GraphState()
        await enable(connection, table)
        await bench.execute("TRUNCATE memory_graph_changes; INSERT INTO memory_concepts VALUES (1, 7), (2, 7)")
        state = await graph_state(connection, table)
        assert (state.exists, state.enabled, state.kept, state.queued) == (True, True, False, True)
        await pause(connection, table)
        assert await graph_state(connection, table) == GraphState(exists=True, kept=True, links=2)
        await pause(connection, table)
        assert await graph_state(connection, table) == GraphState(exists=True, kept=True, links=2)
        await disable(connection, table)
        await pause(connection, table)
        assert await graph_state(connection, table) == GraphState()


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE memories DISABLE TRIGGER zz_memory_graph_update",
        "DROP TRIGGER zz_memory_graph_added ON memory_concepts",
        "DROP INDEX memory_concepts_by_concept",
        "DROP FUNCTION memory_index_concept",
    ],
)
async def test_a_kept_graph_that_lost_a_rule_is_emptied_when_it_is_kept_again(bench: Workbench, change: str) -> None:
    """A link may be left that the rule would have removed."""
    await bench.insert("Marit restarted nas-01.")
    async with bench.database.connection() as connection:
        table = await describe(connection, "memories")
        await enable(connection, table)
        await bench.execute("INSERT INTO memory_concepts VALUES (1, 7)")
        await pause(connection, table)
        await bench.execute(change)
        state = await graph_state(connection, table)
        assert (state.kept, state.differences != "") == (True, True)
        await pause(connection, table)
        assert await graph_state(connection, table) == GraphState(exists=True, kept=True)


@pytest.mark.parametrize("interrupted", range(8))
async def test_what_an_interrupted_command_left_is_seen_and_goes(bench: Workbench, interrupted: int) -> None:
    """Dropping takes several transactions, and whatever is left after each of them is found and can be dropped."""
    async with bench.database.connection() as connection:
        table = await describe(connection, "memories")
        before = await _objects(bench)
        await enable(connection, table)
        for statement in drop_graph(table, others=())[: interrupted + 1]:
            await bench.execute(statement)
        assert (await graph_state(connection, table)).exists
        await pause(connection, table)
        state = await graph_state(connection, table)
        assert state == GraphState(exists=state.kept, kept=state.kept)
        await disable(connection, table)
        assert await _objects(bench) == before


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ("ALTER TABLE memories DISABLE TRIGGER zz_memory_graph_update", "trigger zz_memory_graph_update"),
        ("ALTER TABLE memories ENABLE TRIGGER zz_memory_graph_delete", "trigger zz_memory_graph_delete"),
        ("DROP TRIGGER zz_memory_graph_added ON memory_concepts", "trigger zz_memory_graph_added"),
        ("DROP INDEX memory_concepts_by_concept", "index memory_concepts_by_concept"),
        ("DROP FUNCTION memory_index_concept", "function memory_index_concept"),
        ("DROP TABLE memory_graph", "table memory_graph"),
        ("DELETE FROM memory_graph", "row of memory_graph"),
    ],
)
async def test_a_rule_that_was_lost_is_named_and_restored(bench: Workbench, change: str, difference: str) -> None:
    """The graph is emptied and every memory queued, since links may be left that the rule would have removed."""
    await bench.insert("Marit restarted nas-01.")
    async with bench.database.connection() as connection:
        table = await describe(connection, "memories")
        await enable(connection, table)
        await bench.execute("INSERT INTO memory_concepts VALUES (1, 7)")
        await bench.execute("DELETE FROM memory_graph_changes")
        await bench.execute(change)
        state = await graph_state(connection, table)
        assert (state.enabled, state.filled, state.differences) == (True, False, difference)
        assert await enable(connection, table)
        state = await graph_state(connection, table)
        assert (state.differences, state.links, state.pending) == ("", 0, 1)


@pytest.mark.parametrize("name", ["memory_concepts", "memory_graph_changes", "memory_graph"])
async def test_no_edit_fails_where_a_table_was_dropped(bench: Workbench, name: str) -> None:
    """The triggers do what they can, and enabling makes the table again."""
    await bench.insert("Marit restarted nas-01.", "Kestrel Lane floods.")
    async with bench.database.connection() as connection:
        table = await describe(connection, "memories")
        await enable(connection, table)
        await bench.execute(f"DROP TABLE {name}")
        await bench.execute("UPDATE memories SET content = 'Marit called.' WHERE id = 1")
        await bench.execute("DELETE FROM memories WHERE id = 1")
        await bench.execute("TRUNCATE memories")
        await bench.insert("The boiler leaks.")
        assert await enable(connection, table)
        state = await graph_state(connection, table)
        assert (state.differences, state.pending) == ("", 1)


async def _objects(bench: Workbench) -> list[str]:
    names: list[str] = await bench.value(
        "SELECT array_agg(name ORDER BY name) FROM (SELECT relname AS name FROM pg_class UNION ALL"
        " SELECT tgname FROM pg_trigger UNION ALL SELECT proname FROM pg_proc) objects"
    )
    return names
