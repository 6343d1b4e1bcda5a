"""The roles of `memory roles` have the rights that the concept graph needs while it is enabled, and no others."""

import asyncpg
import pytest

from memory_recall.graph import disable
from memory_recall.graph.neighbourhood import read_neighbourhood
from memory_recall.schema.table import MemoryTable, describe
from tests.integration.memory_recall.graph.workbench import enabled, fill, links
from tests.integration.memory_recall.least_rights import LeastRights, least_rights
from tests.integration.memory_recall.workbench import Workbench

OF_WORKERS = [
    "SELECT importance FROM memories",
    "UPDATE memory_concepts SET concept = 1",
    "UPDATE memory_graph SET extraction = 2",
    "DELETE FROM memory_graph",
    "INSERT INTO memory_graph_changes (memory_id) VALUES (1)",
    "TRUNCATE memory_concepts",
    "ALTER TABLE memory_concepts DISABLE TRIGGER ALL",
]
OF_RECALLS = [
    "INSERT INTO memory_concepts VALUES (1, 7)",
    "DELETE FROM memory_concepts",
    "SELECT * FROM memory_graph_changes",
    "UPDATE memory_graph SET filled_at = now()",
]


async def described(bench: Workbench) -> MemoryTable:
    async with bench.database.connection() as connection:
        return await describe(connection, "memories")


async def refused(roles: LeastRights, worker: list[str], reader: list[str]) -> None:
    for database, statements in ((roles.worker, worker), (roles.reader, reader)):
        async with database.connection() as connection:
            for statement in statements:
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await connection.execute(statement)


@pytest.mark.parametrize("script_first", [True, False])
async def test_the_rights_do_not_depend_on_what_came_first(bench: Workbench, script_first: bool) -> None:
    """Enabling grants them to roles that are there, and the script grants them where the graph is there."""
    if not script_first:
        await enabled(bench)
    async with least_rights(bench) as roles:
        table = await described(bench)
        if script_first:
            await enabled(bench)
        await bench.insert("Tobin restarted nas-01.", "Tobin sings.")
        async with roles.worker.connection() as connection:
            assert await fill(connection, table) == 2
            assert len(await links(connection)) == 2
        async with roles.reader.connection() as connection:
            assert (await read_neighbourhood(connection, table, "tobin", user="default")).memories == 2
        await refused(roles, OF_WORKERS, OF_RECALLS)


async def test_disabling_ends_the_right_to_read_more_of_a_memory(bench: Workbench) -> None:
    """What a worker reads for the graph alone, it may not read without it."""
    async with least_rights(bench) as roles:
        table = await enabled(bench)
        async with roles.worker.connection() as connection:
            await connection.fetch("SELECT tags, expanded_keywords, user_id FROM memories")
        async with bench.database.connection() as owner:
            await disable(owner, table)
        await refused(roles, ["SELECT tags FROM memories", "SELECT user_id FROM memories"], [])
        async with roles.worker.connection() as connection:
            await connection.fetch("SELECT id, content, is_sensitive FROM memories")
