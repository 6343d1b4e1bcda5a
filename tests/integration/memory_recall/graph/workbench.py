"""What the tests of the concept graph share: an enabled and filled graph, and what is wrong with its links."""

import asyncio
from typing import Any

from memory_recall.graph import enable
from memory_recall.graph.concepts import concepts_of
from memory_recall.graph.filling import fill_pass
from memory_recall.schema.table import MemoryTable, describe
from tests.integration.memory_recall.history_shapes import OURS, Shape
from tests.integration.memory_recall.workbench import Workbench


async def fill(connection: Any, table: MemoryTable) -> int:
    """Make passes until one has seen the whole queue; return how many changes were dealt with."""
    handled, more = 0, True
    while more:
        done = await fill_pass(connection, table, asyncio.Event())
        handled, more = handled + done.handled, done.more
    return handled


async def enabled(bench: Workbench, *texts: str) -> MemoryTable:
    """A filled graph of memories with these texts, whose ids begin with 1."""
    await bench.insert(*texts)
    async with bench.database.connection() as connection:
        table = await describe(connection, "memories")
        await enable(connection, table)
        assert await fill(connection, table) == len(texts)
    return table


async def links(connection: Any, shape: Shape = OURS) -> dict[object, set[int]]:
    """The concepts of each memory that has any."""
    rows = await connection.fetch(
        f"SELECT memory_id, array_agg(concept) AS found FROM {shape.own('memory_concepts')} GROUP BY 1"
    )
    return {row["memory_id"]: set(row["found"]) for row in rows}


async def expected(connection: Any, shape: Shape = OURS) -> dict[object, set[int]]:
    """The concepts that each memory should have: those of its present text and owner, none if it is private."""
    ours = "SELECT *, expanded_keywords AS keywords FROM memories"
    rows = await connection.fetch(ours if shape is OURS else f"SELECT *, '' AS keywords FROM ({shape.rows}) AS rows")
    wanted: dict[object, set[int]] = {}
    for row in rows:
        if row["is_sensitive"] or row["deleted_at"] is not None:
            continue
        names = concepts_of(row["content"], row["tags"] or "", row["keywords"] or "")
        numbers = await connection.fetchval(
            f"SELECT array_agg({shape.own('memory_index_concept')}($1, name)) FROM unnest($2::text[]) name",
            row["user_id"],
            list(names),
        )
        if numbers:
            wanted[row["id"]] = set(numbers)
    return wanted


async def wrong_links(connection: Any, shape: Shape = OURS) -> dict[object, set[int]]:
    """Links that no present text explains; there must be none at any time, whether or not the queue is empty."""
    wanted = await expected(connection, shape)
    surplus = {one: found - wanted.get(one, set()) for one, found in (await links(connection, shape)).items()}
    return {one: found for one, found in surplus.items() if found}
