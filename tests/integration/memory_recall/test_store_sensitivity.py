"""The database itself keeps vectors off sensitive, deleted and edited rows, whatever anybody does to the table.

Random histories of statements from three connections, with transactions that overlap at any level of isolation and
roll back, are played against a real server. Some connections apply them as replication does. Every vector encodes the
text that it was made of, so a stale one gives itself away. A part of the histories are played over a table that is
partitioned by user, over one in which users share ids, over one that is replicated to another database, and over
tables of other programs, with other names and keys and with the values inside a document.
"""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any

import asyncpg
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pgvector import HalfVector
from pgvector.asyncpg import register_vector

from memory_recall.errors import MemoryIndexError
from memory_recall.indexing.queue_sql import PendingQueue, PendingRow, WorkerShare
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.migrate import MigrationRequest
from memory_recall.schema.models_sql import active_model
from memory_recall.schema.revisions import require_schema
from tests.integration.conftest import CopyOf, Database
from tests.integration.memory_recall.fake_embedder import vector_of
from tests.integration.memory_recall.history_shapes import OTHERS, OURS, Shape
from tests.integration.memory_recall.logical_replication import replicating
from tests.integration.memory_recall.partitioned import PARTITIONED_TABLE, USERS
from tests.integration.memory_recall.workbench import migrate_and_index

Step = tuple[Any, ...]
Layout = tuple[Any, PendingQueue, str, Any]
OpenLayout = Callable[[str], Awaitable[Layout]]
HISTORIES = int(os.environ.get("MEMORY_TEST_HISTORIES", "60"))
DIMENSIONS = 8
LEVELS = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")

who = st.integers(0, 2)
ids = st.integers(1, 6)
texts = st.sampled_from(["alpha", "beta", "gamma", "delta"])
flags = st.booleans()
steps = st.one_of(
    st.tuples(st.just("insert"), who, ids, texts, flags, flags, flags),
    st.tuples(st.just("upsert"), who, ids, texts, flags),
    st.tuples(st.just("copy"), who, ids, texts, flags, flags),
    st.tuples(st.just("edit"), who, ids, texts),
    st.tuples(st.just("edit_with_vector"), who, ids, texts),
    st.tuples(st.just("hide"), who, ids, flags),
    st.tuples(st.just("mark_deleted"), who, ids, flags),
    st.tuples(st.just("delete"), who, ids),
    st.tuples(st.just("set_vector"), who, texts),
    st.tuples(st.just("touch"), who, ids),
    st.tuples(st.just("move"), who, ids, st.sampled_from(USERS), flags),
    st.tuples(st.just("apply_as_replication"), who, flags),
    st.tuples(st.just("read_pending"), who),
    st.tuples(st.just("write_back"), who),
    st.tuples(st.just("begin"), who),
    st.tuples(st.just("commit"), who),
    st.tuples(st.just("rollback"), who),
)
old_snapshots = st.tuples(st.just("begin_at"), who, st.sampled_from(LEVELS))
histories = st.lists(st.one_of(steps, old_snapshots), min_size=3, max_size=40)
LAYOUTS = ("plain", "partitioned", "equal ids", "replicated", *OTHERS)
layouts = st.sampled_from(["plain", *LAYOUTS, *OTHERS])
_SECRET, _DELETED = "$3::boolean", "CASE WHEN $4::boolean THEN now() END"
_ROW = {
    "id": "$1", "content": "$2::text", "is_sensitive": _SECRET, "deleted_at": _DELETED, "embedding": "$5",
    "user_id": "$6::text",
}  # fmt: skip


def wire(text: str) -> bytes:
    return HalfVector(vector_of(text, DIMENSIONS))


class Player:
    """Plays a history; a statement that Postgres refuses (a duplicate, a lock) is part of history too."""

    def __init__(
        self,
        connections: list["asyncpg.Connection[asyncpg.Record]"],
        queue: PendingQueue,
        *,
        key: str = "id",
        shape: Shape = OURS,
    ) -> None:
        self._shape = shape
        self._connections = connections
        self._queue = queue
        self._key = key
        self._shares_ids = key == "user_id, id"
        self._read: list[PendingRow] = []
        self._replicating: list[asyncpg.Connection[asyncpg.Record]] = []

    async def play(self, history: list[Step]) -> None:
        for name, number, *arguments in history:
            connection = self._connections[number]
            try:
                await getattr(self, f"_{name}")(connection, *arguments)
            except (asyncpg.PostgresError, MemoryIndexError):  # the latter are the former, translated by the store
                if connection.is_in_transaction():
                    await connection.execute("ROLLBACK")
        for connection in self._connections:
            if connection.is_in_transaction():
                with suppress(asyncpg.SerializationError, asyncpg.DeadlockDetectedError, asyncpg.LockNotAvailableError):
                    await connection.execute("COMMIT")
        for connection in self._replicating:
            await connection.execute("RESET session_replication_role")

    def _owner(self, c: Any, key: int) -> str:
        """The user whose row is written: that of the id, or, where users share ids, that of the connection."""
        return USERS[(self._connections.index(c) if self._shares_ids else key) % len(USERS)]

    async def _insert(self, c: Any, key: int, text: str, *marks: bool) -> None:
        secret, deleted, vector = marks
        await c.execute(
            self._shape.insert(**_ROW),
            self._shape.key(key), text, secret, deleted, wire(text) if vector else None, self._owner(c, key),
        )  # fmt: skip

    async def _upsert(self, c: Any, key: int, text: str, secret: bool) -> None:
        insert, changed = self._shape.insert(**_ROW), self._shape.sets(content="$2::text", is_sensitive=_SECRET)
        await c.execute(
            f"{insert} ON CONFLICT ({self._shape.name(self._key)}) DO UPDATE SET {changed}",
            self._shape.key(key), text, secret, None, wire(text), self._owner(c, key),
        )  # fmt: skip

    async def _copy(self, c: Any, key: int, text: str, secret: bool, deleted: bool) -> None:
        if self._shape is not OURS:
            await self._insert(c, key, text, secret, deleted, not deleted)
            return
        row = (key, text, secret, None, wire(text), self._owner(c, key))
        columns = ["id", "content", "is_sensitive", "deleted_at", "embedding", "user_id"]
        await c.copy_records_to_table("memories", records=[row], columns=columns)
        if deleted:
            await c.execute("UPDATE memories SET deleted_at = now() WHERE id = $1", key)

    async def _edit(self, c: Any, key: int, text: str) -> None:
        await self._update(c, key, self._shape.sets(content="$2::text"), text)

    async def _edit_with_vector(self, c: Any, key: int, text: str) -> None:
        # Only where the text changes: that a vector belongs to another text, no database can see from the vector.
        changed = self._shape.sets(content="$2::text", embedding="$3")
        await self._update(c, key, changed, text, wire("stale"), more=f" AND {self._shape.name('content')} <> $2")

    async def _hide(self, c: Any, key: int, secret: bool) -> None:
        await self._update(c, key, self._shape.sets(is_sensitive=_SECRET.replace("$3", "$2")), secret)

    async def _mark_deleted(self, c: Any, key: int, deleted: bool) -> None:
        await self._update(c, key, self._shape.sets(deleted_at=_DELETED.replace("$4", "$2")), deleted)

    async def _delete(self, c: Any, key: int) -> None:
        shape = self._shape
        await c.execute(f"DELETE FROM {shape.table} WHERE {shape.name('id')} = $1", shape.key(key))

    async def _set_vector(self, c: Any, text: str) -> None:
        where = f"{self._shape.name('content')} = $1"
        changed = self._shape.sets(embedding="$2")
        await c.execute(f"UPDATE {self._shape.table} SET {changed} WHERE {where}", text, wire(text))

    async def _touch(self, c: Any, key: int) -> None:
        await self._update(c, key, f"{self._shape.name('importance')} = random()")

    async def _move(self, c: Any, key: int, user: str, edited: bool) -> None:
        text = "'moved'" if edited else self._shape.name("content")
        await self._update(c, key, self._shape.sets(user_id="$2::text", content=text), user)

    async def _update(self, c: Any, key: int, changed: str, *values: object, more: str = "") -> None:
        shape = self._shape
        statement = f"UPDATE {shape.table} SET {changed} WHERE {shape.name('id')} = $1{more}"
        await c.execute(statement, shape.key(key), *values)

    async def _read_pending(self, c: Any) -> None:
        self._read = (await self._queue.page(c, None, WorkerShare(), 100)).rows

    async def _write_back(self, c: Any) -> None:
        if self._read:
            vectors = np.stack([vector_of(row.text, DIMENSIONS) for row in self._read])
            await self._queue.write(c, self._read, vectors)

    async def _begin(self, c: Any) -> None:
        if not c.is_in_transaction():
            await c.execute("BEGIN")

    async def _begin_at(self, c: Any, level: str) -> None:
        if not c.is_in_transaction():
            await c.execute(f"BEGIN ISOLATION LEVEL {level}")
            await c.fetchval(f"SELECT count(*) FROM {self._shape.table}")

    async def _apply_as_replication(self, c: Any, replicated: bool) -> None:
        self._replicating.append(c)
        await c.execute(f"SET session_replication_role = {'replica' if replicated else 'origin'}")

    async def _commit(self, c: Any) -> None:
        await c.execute("COMMIT")

    async def _rollback(self, c: Any) -> None:
        await c.execute("ROLLBACK")


@asynccontextmanager
async def waiting_for_locks(connection: Any) -> AsyncIterator[None]:
    """Let a connection wait for locks that others hold, such as autovacuum's; the steps of a history never wait."""
    await connection.execute("SET lock_timeout = '60s'")
    yield
    await connection.execute("RESET lock_timeout")


async def violations(connection: Any, shape: Shape = OURS) -> list[tuple[object, str]]:
    rows = await connection.fetch(shape.rows)
    wrong = []
    for row in rows:
        if row["embedding"] is None:
            continue
        if row["is_sensitive"] or row["deleted_at"] is not None:
            wrong.append((row["id"], "private"))
        if row["embedding"] != wire(row["content"]):
            wrong.append((row["id"], "stale"))
    return wrong


@asynccontextmanager
async def opened_parts(database: Database, table_name: str = "memories") -> AsyncIterator[Any]:
    admin = await asyncpg.connect(database.superuser_dsn)
    await admin.execute("GRANT SET ON PARAMETER session_replication_role TO app")
    await admin.close()
    connections = [await asyncpg.connect(database.dsn, server_settings={"lock_timeout": "20"}) for _ in range(3)]
    for connection in connections:
        await register_vector(connection)
    table = await require_schema(connections[0], table_name)
    model = await active_model(connections[0], table)
    yield connections, PendingQueue(table, model.id)
    for connection in connections:
        await connection.close()


@pytest.fixture
async def player_parts(database: Database, request_for: Callable[..., MigrationRequest]) -> Any:
    await migrate_and_index(DsnText(database.dsn), request_for(dimensions=DIMENSIONS))
    async with opened_parts(database) as parts:
        yield parts


@pytest.fixture
async def open_layout(copy_of: CopyOf, request_for: Callable[..., MigrationRequest]) -> AsyncIterator[OpenLayout]:
    """Opens a layout: a player's parts, the columns of the table's key, and the replication of the table, if any."""

    async def fill(empty: Database, *statements: str) -> None:
        async with empty.connection() as connection:
            for statement in statements:
                await connection.execute(statement)
        await migrate_and_index(DsnText(empty.dsn), request_for(dimensions=DIMENSIONS))

    async def fill_other(empty: Database, shape: Shape) -> None:
        async with empty.connection() as connection:
            await connection.execute(shape.create)
        request = request_for(dimensions=DIMENSIONS, table=shape.plain_name, columns=shape.columns)
        await migrate_and_index(DsnText(empty.dsn), request)

    async with AsyncExitStack() as stack:

        async def opened(layout: str) -> Layout:
            if layout in OTHERS:
                shape = OTHERS[layout]
                other = await copy_of(f"played {layout}", partial(fill_other, shape=shape))
                return *await stack.enter_async_context(opened_parts(other, shape.plain_name)), "id", None
            if layout == "partitioned":
                partitioned = await copy_of("played partitions", lambda empty: fill(empty, *PARTITIONED_TABLE))
                return *await stack.enter_async_context(opened_parts(partitioned)), "id, user_id", None
            plain = await copy_of("played plain", fill)
            connections, queue = await stack.enter_async_context(opened_parts(plain))
            if layout == "equal ids":
                await connections[0].execute(
                    "ALTER TABLE memories DROP CONSTRAINT memories_pkey, ADD PRIMARY KEY (user_id, id)"
                )
                return connections, queue, "user_id, id", None
            if layout == "replicated":
                target = await copy_of("played plain", fill)
                replication = await stack.enter_async_context(replicating(plain, target, "memories"))
                await register_vector(replication.subscriber)
                return connections, queue, "id", replication
            return connections, queue, "id", None

        yield opened


@pytest.fixture
async def parts_of_layouts(open_layout: OpenLayout) -> dict[str, Layout]:
    return {layout: await open_layout(layout) for layout in LAYOUTS}


@pytest.mark.promise("no-vector-of-a-sensitive-row")
@settings(
    max_examples=HISTORIES,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(layout=layouts, history=histories)
@example(
    layout="plain",
    history=[
        ("insert", 0, 1, "alpha", False, False, False),
        ("read_pending", 0),
        ("edit", 1, 1, "beta"),
        ("write_back", 0),
    ],
)
@example(
    layout="partitioned",
    history=[
        ("insert", 0, 1, "alpha", False, False, True),
        ("move", 1, 1, "dan", True),
    ],
)
@example(
    layout="equal ids",
    history=[
        ("insert", 0, 1, "alpha", False, False, False),
        ("insert", 1, 1, "alpha", True, False, True),
        ("read_pending", 0),
        ("write_back", 0),
        ("set_vector", 0, "alpha"),
    ],
)
@example(
    layout="replicated",
    history=[
        ("insert", 0, 1, "alpha", False, False, True),
        ("apply_as_replication", 1, True),
        ("begin_at", 1, "REPEATABLE READ"),
        ("hide", 1, 1, True),
        ("set_vector", 1, "alpha"),
        ("commit", 1),
    ],
)
@example(
    layout="plain",
    history=[
        ("insert", 0, 1, "alpha", False, False, True),
        ("begin", 1),
        ("hide", 1, 1, True),
        ("set_vector", 1, "alpha"),
        ("commit", 1),
    ],
)
async def test_no_sequence_of_writes_leaves_a_sensitive_or_stale_vector(
    parts_of_layouts: Any, layout: str, history: list[Step]
) -> None:
    connections, queue, key, replication = parts_of_layouts[layout]
    shape = OTHERS.get(layout, OURS)
    async with waiting_for_locks(connections[0]):
        await connections[0].execute(f"TRUNCATE {shape.table}")
    await Player(connections, queue, key=key, shape=shape).play(history)
    async with waiting_for_locks(connections[0]):
        assert await violations(connections[0], shape) == []
    if replication is not None:
        await replication.catch_up()
        assert await violations(replication.subscriber) == []


@pytest.mark.parametrize("layout", ["plain", *OTHERS])
async def test_the_steps_of_histories_are_carried_out_in_tables_of_every_form(
    open_layout: OpenLayout, layout: str
) -> None:
    """What Postgres refuses is a part of a history, so a step that is always refused would be noticed by nobody."""
    connections, queue, _key, _replication = await open_layout(layout)
    shape, player = OTHERS.get(layout, OURS), Player(connections, queue, shape=OTHERS.get(layout, OURS))
    await connections[0].execute(f"TRUNCATE {shape.table}")
    history: list[Step] = [
        ("insert", 0, 1, "alpha", False, False, True),
        ("copy", 0, 2, "beta", False, False),
        ("upsert", 0, 3, "gamma", False),
        ("upsert", 0, 3, "delta", False),
        ("touch", 0, 1),
        ("move", 0, 1, USERS[1], False),
    ]
    await player.play(history)
    found = {row["content"]: row["embedding"] is not None for row in await connections[0].fetch(shape.rows)}
    assert found == {"alpha": True, "beta": True, "delta": False}
    await player.play([("read_pending", 0), ("write_back", 0), ("hide", 0, 1, True), ("mark_deleted", 0, 2, True)])
    after = {row["content"]: row["embedding"] is not None for row in await connections[0].fetch(shape.rows)}
    assert after == {"alpha": False, "beta": False, "delta": True}
    await player.play([("edit", 0, 3, "gamma"), ("set_vector", 0, "gamma"), ("edit_with_vector", 0, 3, "alpha")])
    await player.play([("delete", 0, 1), ("delete", 0, 2)])
    (row,) = await connections[0].fetch(shape.rows)
    assert (row["content"], row["embedding"]) == ("alpha", None)


@pytest.mark.promise("no-vector-of-a-sensitive-row")
async def test_the_constraint_holds_even_where_the_trigger_is_gone(player_parts: Any) -> None:
    connections, _queue = player_parts
    connection = connections[0]
    await connection.execute("DROP TRIGGER zz_memory_index_insert ON memories")
    with pytest.raises(asyncpg.CheckViolationError):
        await connection.execute(
            "INSERT INTO memories (content, is_sensitive, embedding) VALUES ('x', true, $1)", wire("x")
        )


@pytest.mark.promise("later-trigger-changes-nothing")
async def test_rows_that_replication_applies_obey_the_rules_too(player_parts: Any, database: Database) -> None:
    admin = await asyncpg.connect(database.superuser_dsn)
    await register_vector(admin)
    await admin.execute("SET session_replication_role = replica")
    await admin.execute("INSERT INTO memories (content, embedding) VALUES ('old', $1)", wire("old"))
    await admin.execute("UPDATE memories SET content = 'new'")
    assert await admin.fetchval("SELECT count(embedding) FROM memories") == 0
    await admin.close()


@pytest.mark.promise("later-trigger-changes-nothing")
async def test_a_later_trigger_of_the_user_cannot_undo_the_rules(player_parts: Any) -> None:
    connections, _queue = player_parts
    connection = connections[0]
    await connection.execute(
        "CREATE FUNCTION mark() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN NEW.is_sensitive := true; RETURN NEW; END $$"
    )
    await connection.execute(
        "CREATE TRIGGER users_own BEFORE INSERT OR UPDATE ON memories FOR EACH ROW EXECUTE FUNCTION mark()"
    )
    await connection.execute("INSERT INTO memories (content, embedding) VALUES ('x', $1)", wire("x"))
    assert await connection.fetchval("SELECT count(embedding) FROM memories") == 0
