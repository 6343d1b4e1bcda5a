"""The concept graph of tables that another program made: other names, fewer columns, other types."""

from collections.abc import Callable

import pytest

from memory_recall.graph import disable, enable, graph_state
from memory_recall.graph.neighbourhood import read_neighbourhood
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.migrate import MigrationRequest, migrate, remove
from memory_recall.schema.table import describe, quoted
from tests.integration.memory_recall.graph.workbench import fill
from tests.integration.memory_recall.workbench import Workbench

COLUMNS = {
    "the least columns": "content text NOT NULL",
    "varchar and integer": "content text, tags varchar(200), user_id integer, expanded_keywords text[]",
}


@pytest.mark.parametrize("name", ["notes", 'it\'s 50% "odd" \\', "a table of twenty-nine letters"[:29]])
@pytest.mark.parametrize("columns", COLUMNS)
async def test_a_second_table_of_any_shape_has_a_graph_of_its_own(
    bench: Workbench, request_for: Callable[..., MigrationRequest], name: str, columns: str
) -> None:
    """Its rules are complete, its links go with its rows, and the other table's graph is left alone."""
    await bench.insert("Marit restarted nas-01.")
    async with bench.database.connection() as connection:
        first = await describe(connection, "memories")
        await enable(connection, first)
        await fill(connection, first)
        await connection.execute(
            f"CREATE TABLE {quoted(name)} (id bigint PRIMARY KEY, {COLUMNS[columns]}, is_sensitive integer NOT NULL"
            " DEFAULT 0, deleted_at timestamptz, search_vector tsvector)"
        )
        await migrate(DsnText(bench.database.dsn), request_for(table=name))
        second = await describe(connection, name)
        await enable(connection, second)
        await connection.executemany(
            f"INSERT INTO {quoted(name)} (id, content) VALUES ($1, $2)", [(1, "Tobin and Marit"), (2, "Tobin sings")]
        )
        assert await fill(connection, second) == 2
        state = await graph_state(connection, second)
        assert (state.filled, state.differences, state.memories) == (True, "", 2)
        found = await read_neighbourhood(connection, second, "Tobin", user=None)
        assert [one.id for one in found.newest] == [2, 1]
        await connection.execute(f"UPDATE {quoted(name)} SET is_sensitive = 1 WHERE id = 2")
        assert [one.id for one in (await read_neighbourhood(connection, second, "Tobin", user=None)).newest] == [1]
        assert (await graph_state(connection, first)).links == 3
        await disable(connection, second)
        await enable(connection, second)
        await remove(DsnText(bench.database.dsn), request_for(table=name))
        assert not (await graph_state(connection, second)).enabled
        assert (await graph_state(connection, first)).differences == ""
