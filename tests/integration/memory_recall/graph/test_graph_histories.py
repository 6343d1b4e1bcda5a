"""Random histories of writes, as they are played against the rules about vectors, leave no wrong link.

Workers of the concept graph read in one step and write in another, in transactions of their own or of others, and some
transactions see an old snapshot.
"""

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from memory_recall.graph import enable
from memory_recall.graph.filling import Read, read_batch, write_batch
from memory_recall.graph.sweeping import sweep_links
from memory_recall.indexing.queue_sql import PendingQueue
from memory_recall.schema.table import MemoryTable, describe
from tests.integration.memory_recall.graph.workbench import expected, fill, links, wrong_links
from tests.integration.memory_recall.test_store_sensitivity import (
    Player,
    Step,
    flags,
    ids,
    old_snapshots,
    patient,
    player_parts,
    steps,
    texts,
    violations,
    who,
)

HISTORIES = int(os.environ.get("MEMORY_TEST_HISTORIES", "40"))
__all__ = ["player_parts"]

graph_steps = st.one_of(
    st.tuples(st.just("retag"), who, ids, texts),
    st.tuples(st.just("give"), who, ids, st.sampled_from(["ana", "tobin"])),
    st.tuples(st.just("truncate"), who),
    st.tuples(st.just("link"), who, ids),
    st.tuples(st.just("read_changes"), who, flags),
    st.tuples(st.just("write_links"), who, flags),
    *(st.tuples(st.just("pass"), who) for _ in range(4)),  # often, since without links nothing can be wrong
)
histories = st.lists(st.one_of(steps, graph_steps), min_size=3, max_size=40)
any_snapshots = st.lists(st.one_of(steps, graph_steps, old_snapshots), min_size=3, max_size=40)


class GraphPlayer(Player):
    """Also plays what changes the concepts of a row, and two workers that fill the graph."""

    def __init__(self, connections: list[Any], queue: PendingQueue, table: MemoryTable) -> None:
        super().__init__(connections, queue)
        self._table = table
        self._changes: dict[bool, Read] = {}

    async def _retag(self, c: Any, key: int, tag: str) -> None:
        await c.execute("UPDATE memories SET tags = $2 WHERE id = $1", key, tag)

    async def _give(self, c: Any, key: int, user: str) -> None:
        await c.execute("UPDATE memories SET user_id = $2 WHERE id = $1", key, user)

    async def _truncate(self, c: Any) -> None:
        await c.execute("TRUNCATE memories")

    async def _link(self, c: Any, key: int) -> None:
        # Somebody else's insert of a link that a worker would insert; which others it inserts, no rule can judge.
        await c.execute(
            "INSERT INTO memory_concepts SELECT id, memory_index_concept(user_id, content) FROM memories WHERE id = $1"
            " ON CONFLICT DO NOTHING",
            key,
        )

    async def _read_changes(self, c: Any, worker: bool) -> None:
        self._changes[worker] = await read_batch(c, self._table, 0)

    async def _write_links(self, c: Any, worker: bool) -> None:
        if worker not in self._changes:
            return
        if c.is_in_transaction():
            await write_batch(c, self._table, self._changes[worker])
        else:
            async with c.transaction():
                await write_batch(c, self._table, self._changes[worker])

    async def _pass(self, c: Any) -> None:
        await self._read_changes(c, worker=True)
        await self._write_links(c, worker=True)


@pytest.fixture
async def parts(player_parts: Any) -> Any:
    connections, queue = player_parts
    async with patient(connections[0]):
        table = await describe(connections[0], "memories")
        await enable(connections[0], table)
        await connections[0].execute("RESET lock_timeout")
    return connections, queue, table


async def _play(parts: Any, history: list[Step]) -> Any:
    """Play a history from an empty table; return the first connection."""
    connections, queue, table = parts
    async with patient(connections[0]):
        await connections[0].execute("TRUNCATE memories, memory_graph_changes")
    await GraphPlayer(connections, queue, table).play(history)
    return connections[0]


@pytest.mark.promise("graph-without-sensitive-rows")
@settings(max_examples=HISTORIES, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(history=histories)
@example(history=[("insert", 0, 1, "alpha", False, False, False), ("pass", 0), ("hide", 1, 1, True)])
@example(
    history=[
        ("insert", 0, 1, "alpha", False, False, False),
        ("read_changes", 0, True),
        ("hide", 1, 1, True),
        ("write_links", 0, True),
    ]
)
@example(
    history=[
        ("insert", 0, 1, "alpha", False, False, False),
        ("read_changes", 0, True),
        ("edit", 1, 1, "beta"),
        ("write_links", 0, True),
    ]
)
@example(
    history=[
        ("insert", 0, 1, "alpha", False, False, False),
        ("begin", 1),
        ("hide", 1, 1, True),
        ("read_changes", 0, True),
        ("write_links", 0, True),
        ("commit", 1),
    ]
)
async def test_no_sequence_of_writes_leaves_a_link_without_its_text(parts: Any, history: list[Step]) -> None:
    """At no time is there a link of a private row or of another text, and in the end every row has its links."""
    connection = await _play(parts, history)
    async with patient(connection):
        assert await wrong_links(connection) == {}
        await fill(connection, parts[2])
        assert await links(connection) == await expected(connection)
        assert await violations(connection) == []


@pytest.mark.promise("graph-without-sensitive-rows")
@settings(max_examples=HISTORIES, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(history=any_snapshots)
@example(
    history=[
        ("insert", 0, 1, "alpha", False, False, False),
        ("begin_at", 1, "REPEATABLE READ"),
        ("read_changes", 0, True),
        ("write_links", 0, True),
        ("hide", 1, 1, True),
        ("commit", 1),
    ]
)
async def test_no_sequence_of_writes_from_old_snapshots_leaves_a_link_once_the_queue_is_empty(
    parts: Any, history: list[Step]
) -> None:
    """What it could not see, the queue removes; and the sweep, without the queue, what is private of that."""
    connection = await _play(parts, history)
    async with patient(connection):
        after: int | None = 0
        while after is not None:
            after = await sweep_links(connection, parts[2], after)
        private = "SELECT id FROM memories WHERE is_sensitive OR deleted_at IS NOT NULL"
        assert await connection.fetch(f"SELECT FROM memory_concepts WHERE memory_id IN ({private})") == []
        await fill(connection, parts[2])
        assert await links(connection) == await expected(connection)
        assert await connection.fetchval("SELECT count(*) FROM memory_graph_changes") == 0
