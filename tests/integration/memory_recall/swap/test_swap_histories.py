"""Whatever happens to the table while models are swapped, no column ever holds a vector that is not its own.

The histories of the sensitivity tests, with swaps going on in them: opened, filled, flipped half filled, taken back,
aborted, finished, by a process that read its rows and models a while ago. Every vector tells its text and its model.
"""

from collections.abc import Callable
from typing import Any

import asyncpg
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pgvector.asyncpg import register_vector

from memory_recall.embedding.served_model import ServedModel
from memory_recall.indexing.queue_sql import PendingQueue, PendingRow, WorkerShare
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.migrate import MigrationRequest
from memory_recall.schema.models_sql import read_roles
from memory_recall.schema.rules.expected import column_model, update_trigger
from memory_recall.schema.table import ACTIVE, GUARDED, GUARDED_WRITER, STANDBY, VectorColumn, describe
from memory_recall.swap import standby_sql, state_sql
from tests.integration.conftest import Database
from tests.integration.memory_recall.fake_embedder import vector_of
from tests.integration.memory_recall.swap.conftest import NEXT_SALT, halved
from tests.integration.memory_recall.test_store_sensitivity import (
    DIMENSIONS,
    HISTORIES,
    Player,
    Step,
    flags,
    steps,
    waiting_for_locks,
)
from tests.integration.memory_recall.workbench import migrate_and_index

SALTS = {"tiny": "", "small": NEXT_SALT}
TARGET = ServedModel("small", DIMENSIONS, "sha256:bb")
OPEN = {"planned", "filling", "indexing", "gating", "ready", "refused"}

swap_steps = st.one_of(
    st.tuples(st.sampled_from(["open", "flip", "take_back", "abort", "finish"]), st.just(0)),
    st.tuples(st.sampled_from(["worker_read", "worker_write"]), st.just(0), flags),
)
histories = st.lists(st.one_of(steps, swap_steps, swap_steps), min_size=6, max_size=40)


class SwapPlayer(Player):
    """Plays the users' statements on three connections, and the swap and its worker on a fourth."""

    def __init__(self, users: list[Any], swapper: Any, queue: PendingQueue) -> None:
        super().__init__(users, queue)
        self._swapper = swapper
        self._pages: dict[VectorColumn, tuple[PendingQueue, str, list[PendingRow]]] = {}

    async def _now(self) -> tuple[Any, Any, Any]:
        table = await describe(self._swapper, "memories")
        return table, await state_sql.latest(self._swapper, table), await read_roles(self._swapper, table)

    async def _open(self, _c: Any) -> None:
        table, swap, roles = await self._now()
        if roles.active.name == "tiny" and (swap is None or swap.stage in {"aborted", "finished"}):
            await state_sql.open_swap(self._swapper, table, TARGET, "http://127.0.0.1:1")
        table, swap, _ = await self._now()
        if swap is not None and swap.stage in OPEN and table.standby_dimensions is None:
            await state_sql.add_column(self._swapper, table, swap, give_up_after=0)

    async def _flip(self, _c: Any) -> None:
        table, swap, _ = await self._now()
        if swap is not None and swap.stage in OPEN and table.standby_dimensions is not None:
            await state_sql.flip(self._swapper, table, swap, give_up_after=0)

    async def _take_back(self, _c: Any) -> None:
        table, swap, _ = await self._now()
        if swap is not None and swap.stage == "flipped":
            await state_sql.open_rollback(self._swapper, table, swap.from_model.id, "http://127.0.0.1:2")

    async def _abort(self, _c: Any) -> None:
        table, swap, roles = await self._now()
        if swap is not None and swap.stage in OPEN and roles.active.name == "tiny":
            await state_sql.end(self._swapper, table, swap, "aborted", give_up_after=0)

    async def _finish(self, _c: Any) -> None:
        """Only where the users' own vectors, which are the first model's, are right again without our help."""
        table, swap, roles = await self._now()
        if swap is not None and swap.stage == "flipped" and roles.active.name == "tiny":
            await state_sql.end(self._swapper, table, swap, "finished", give_up_after=0)

    async def _worker_read(self, _c: Any, standby: bool) -> None:
        table, _, roles = await self._now()
        column, model = (STANDBY, roles.next) if standby else (ACTIVE, roles.active)
        if model is not None and (not standby or table.standby_dimensions is not None):
            queue = PendingQueue(table, model.id, column)
            self._pages[column] = (queue, model.name, (await queue.page(self._swapper, 0, WorkerShare(), 100)).rows)

    async def _worker_write(self, _c: Any, standby: bool) -> None:
        """Perhaps long after the read: the model may be in the other column by now, or nowhere."""
        queue, model, rows = self._pages.get(STANDBY if standby else ACTIVE, (None, "", []))
        if queue is not None and rows:
            vectors = np.stack([vector_of(SALTS[model] + row.text, DIMENSIONS) for row in rows])
            await queue.write(self._swapper, rows, vectors)


async def violations(connection: Any) -> list[tuple[int, str, str]]:
    roles = await read_roles(connection, await describe(connection, "memories"))
    own = SALTS[roles.active.name]
    wrong = []
    for row in await connection.fetch("SELECT * FROM memories"):
        for column, salt in ((ACTIVE.purpose, own), (STANDBY.purpose, NEXT_SALT if own == "" else "")):
            vector = row.get(column)
            if vector is None:
                continue
            if row["is_sensitive"] or row["deleted_at"] is not None:
                wrong.append((row["id"], column, "private"))
            if vector != halved(row["content"], salt, DIMENSIONS):
                wrong.append((row["id"], column, "of another text or model"))
    return wrong


@pytest.fixture
async def parts(database: Database, request_for: Callable[..., MigrationRequest]) -> Any:
    await migrate_and_index(DsnText(database.dsn), request_for(dimensions=DIMENSIONS))
    admin = await asyncpg.connect(database.superuser_dsn)
    await admin.execute("GRANT SET ON PARAMETER session_replication_role TO app")
    await admin.close()
    guarded = {GUARDED_WRITER: GUARDED, "lock_timeout": "20"}
    users = [await asyncpg.connect(database.dsn, server_settings={"lock_timeout": "20"}) for _ in range(3)]
    swapper = await asyncpg.connect(database.dsn, server_settings=guarded)
    for connection in (*users, swapper):
        await register_vector(connection)
    table = await describe(swapper, "memories")
    first = (await read_roles(swapper, table)).active.id
    yield users, swapper, first
    for connection in (*users, swapper):
        await connection.close()


async def _afresh(swapper: Any, first: int) -> PendingQueue:
    table = await describe(swapper, "memories")
    await swapper.execute("TRUNCATE memories")
    for statement in (*standby_sql.drop_standby(table)[1:], *update_trigger(table).create(table)):
        await swapper.execute(statement)
    await swapper.execute("DELETE FROM memory_index_swaps")
    await swapper.execute("UPDATE memory_index_state SET active_model = $1, next_model = NULL", first)
    for statement in column_model(first).create(table):
        await swapper.execute(statement)
    return PendingQueue(await describe(swapper, "memories"), first)


@settings(
    max_examples=max(20, HISTORIES // 3),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(history=histories)
@example(
    history=[
        ("insert", 0, 1, "alpha", False, False, True),
        ("open", 0),
        ("worker_read", 0, True),
        ("flip", 0),
        ("worker_write", 0, True),
        ("set_vector", 1, "alpha"),
        ("take_back", 0),
        ("flip", 0),
    ]
)
@example(
    history=[
        ("open", 0),
        ("insert", 0, 1, "alpha", False, False, False),
        ("worker_read", 0, False),
        ("flip", 0),
        ("worker_write", 0, False),
    ]
)
async def test_no_sequence_of_writes_and_swaps_leaves_a_wrong_vector(parts: Any, history: list[Step]) -> None:
    users, swapper, first = parts
    async with waiting_for_locks(swapper):
        queue = await _afresh(swapper, first)
    await SwapPlayer(users, swapper, queue).play(history)
    async with waiting_for_locks(swapper):
        assert await violations(swapper) == []
