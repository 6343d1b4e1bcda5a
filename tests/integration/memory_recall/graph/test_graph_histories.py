"""Random histories of writes, as they are played against the rules about vectors, leave no wrong link.

Workers of the concept graph read in one step and write in another, in transactions of their own or of others, and some
transactions see an old snapshot. A part of the histories are played over tables of other programs, with other names
and keys and with the values inside a document.
"""

import os
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from memory_recall.graph import enable
from memory_recall.graph.filling import Read, read_batch, write_batch
from memory_recall.graph.sweeping import sweep_links
from memory_recall.indexing.queue_sql import PendingQueue
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.graph_relations import CHANGES
from memory_recall.schema.table import MemoryTable, describe
from tests.integration.conftest import CopyOf, Database
from tests.integration.memory_recall.graph.workbench import expected, fill, links, wrong_links
from tests.integration.memory_recall.history_shapes import OTHERS, OURS, Shape
from tests.integration.memory_recall.test_store_sensitivity import (
    DIMENSIONS,
    Player,
    Step,
    flags,
    ids,
    old_snapshots,
    opened_parts,
    steps,
    texts,
    violations,
    waiting_for_locks,
    who,
)
from tests.integration.memory_recall.workbench import migrate_and_index

HISTORIES = int(os.environ.get("MEMORY_TEST_HISTORIES", "40"))
SHAPES = {"ours": OURS, **OTHERS}
shapes = st.sampled_from(["ours", "ours", "ours", *OTHERS])

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

    def __init__(self, connections: list[Any], queue: PendingQueue, table: MemoryTable, shape: Shape) -> None:
        super().__init__(connections, queue, shape=shape)
        self._table = table
        self._changes: dict[bool, Read] = {}

    async def _retag(self, c: Any, key: int, tag: str) -> None:
        await self._update(c, key, self._shape.sets(tags="$2::text"), tag)

    async def _give(self, c: Any, key: int, user: str) -> None:
        await self._update(c, key, self._shape.sets(user_id="$2::text"), user)

    async def _truncate(self, c: Any) -> None:
        await c.execute(f"TRUNCATE {self._shape.table}")

    async def _link(self, c: Any, key: int) -> None:
        # Somebody else's insert of a link that a worker would insert; which others it inserts, no rule can judge.
        shape = self._shape
        number = f"{shape.own('memory_index_concept')}(user_id, content)"
        await c.execute(
            f"INSERT INTO {shape.own('memory_concepts')} SELECT id, {number} FROM ({shape.rows}) AS rows WHERE id = $1"
            " ON CONFLICT DO NOTHING",
            shape.key(key),
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


@dataclass(frozen=True)
class Parts:
    """A table with a concept graph, and what plays its histories."""

    shape: Shape
    table: MemoryTable
    connections: list[Any]
    queue: PendingQueue

    def player(self) -> GraphPlayer:
        return GraphPlayer(self.connections, self.queue, self.table, self.shape)


@pytest.fixture
async def parts(copy_of: CopyOf, request_for: Any) -> Any:
    """The parts of a history, by the form of its table."""

    async def enable_graph(empty: Database, shape: Shape) -> None:
        async with empty.connection() as connection:
            if shape.create:
                await connection.execute(shape.create)
            request = request_for(dimensions=DIMENSIONS, table=shape.plain_name, columns=shape.columns)
            await migrate_and_index(DsnText(empty.dsn), request)
            await enable(connection, await describe(connection, shape.plain_name))

    opened = {}
    async with AsyncExitStack() as stack:
        for name, shape in SHAPES.items():
            database = await copy_of(f"graph played {name}", partial(enable_graph, shape=shape))
            connections, queue = await stack.enter_async_context(opened_parts(database, shape.plain_name))
            opened[name] = Parts(shape, await describe(connections[0], shape.plain_name), connections, queue)
        yield opened


async def _play(parts: Parts, history: list[Step]) -> Any:
    """Play a history from an empty table; return the first connection."""
    connection = parts.connections[0]
    async with waiting_for_locks(connection):
        await connection.execute(f"TRUNCATE {parts.shape.table}, {parts.table.own(CHANGES)}")
    await parts.player().play(history)
    return connection


@pytest.mark.promise("graph-without-sensitive-rows")
@settings(max_examples=HISTORIES, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(form=shapes, history=histories)
@example(form="ours", history=[("insert", 0, 1, "alpha", False, False, False), ("pass", 0), ("hide", 1, 1, True)])
@example(
    form="ours",
    history=[
        ("insert", 0, 1, "alpha", False, False, False),
        ("read_changes", 0, True),
        ("hide", 1, 1, True),
        ("write_links", 0, True),
    ],
)
@example(
    form="ours",
    history=[
        ("insert", 0, 1, "alpha", False, False, False),
        ("read_changes", 0, True),
        ("edit", 1, 1, "beta"),
        ("write_links", 0, True),
    ],
)
@example(
    form="ours",
    history=[
        ("insert", 0, 1, "alpha", False, False, False),
        ("begin", 1),
        ("hide", 1, 1, True),
        ("read_changes", 0, True),
        ("write_links", 0, True),
        ("commit", 1),
    ],
)
async def test_no_sequence_of_writes_leaves_a_link_without_its_text(
    parts: dict[str, Parts], form: str, history: list[Step]
) -> None:
    """At no time is there a link of a private row or of another text, and in the end every row has its links."""
    chosen = parts[form]
    connection, shape = await _play(chosen, history), chosen.shape
    async with waiting_for_locks(connection):
        assert await wrong_links(connection, shape) == {}
        await fill(connection, chosen.table)
        assert await links(connection, shape) == await expected(connection, shape)
        assert await violations(connection, shape) == []


@pytest.mark.promise("graph-without-sensitive-rows")
@settings(max_examples=HISTORIES, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(form=shapes, history=any_snapshots)
@example(
    form="ours",
    history=[
        ("insert", 0, 1, "alpha", False, False, False),
        ("begin_at", 1, "REPEATABLE READ"),
        ("read_changes", 0, True),
        ("write_links", 0, True),
        ("hide", 1, 1, True),
        ("commit", 1),
    ],
)
async def test_no_sequence_of_writes_from_old_snapshots_leaves_a_link_once_the_queue_is_empty(
    parts: dict[str, Parts], form: str, history: list[Step]
) -> None:
    """What it could not see, the queue removes; and the sweep, without the queue, what is private of that."""
    chosen = parts[form]
    connection, shape = await _play(chosen, history), chosen.shape
    async with waiting_for_locks(connection):
        after = await sweep_links(connection, chosen.table, None)
        while after is not None:
            after = await sweep_links(connection, chosen.table, after)
        private = f"SELECT id FROM ({shape.rows}) AS rows WHERE is_sensitive OR deleted_at IS NOT NULL"
        concepts = shape.own("memory_concepts")
        assert await connection.fetch(f"SELECT FROM {concepts} WHERE memory_id IN ({private})") == []
        await fill(connection, chosen.table)
        assert await links(connection, shape) == await expected(connection, shape)
        assert await connection.fetchval(f"SELECT count(*) FROM {shape.own('memory_graph_changes')}") == 0


@pytest.mark.parametrize("form", SHAPES)
async def test_the_steps_of_the_graph_are_carried_out_in_tables_of_every_form(
    parts: dict[str, Parts], form: str
) -> None:
    """What Postgres refuses is a part of a history, so a step that is always refused would be noticed by nobody."""
    chosen = parts[form]
    history: list[Step] = [
        ("insert", 0, 1, "alpha", False, False, False),
        ("insert", 0, 2, "beta", False, False, False),
        ("retag", 0, 1, "gamma"),
        ("give", 0, 2, "tobin"),
        ("pass", 0),
        ("insert", 0, 3, "delta", False, False, False),
        ("link", 0, 3),
    ]
    connection = await _play(chosen, history)
    found = await links(connection, chosen.shape)
    assert sorted(map(len, found.values())) == [1, 1, 2]
    assert found == await expected(connection, chosen.shape)
    await chosen.player().play([("truncate", 0)])
    assert await links(connection, chosen.shape) == {}
