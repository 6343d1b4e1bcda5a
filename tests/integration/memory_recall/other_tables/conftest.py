"""Stores of memories that other programs made, with a vector index and an embedder whose vectors a test chooses."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import asyncpg
import pytest

from memory_recall.postgres.connection import DsnText
from memory_recall.schema.migrate import MigrationRequest
from memory_recall.schema.table import MemoryTable, describe
from memory_recall.search.hybrid_recall import HybridRecall
from memory_recall.search.options import RecallOptions
from tests.integration.conftest import CopyOf, Database
from tests.integration.memory_recall.read_path.conftest import LONG_BUDGET, ChosenEmbedder
from tests.integration.memory_recall.read_path.splitting import Fetched
from tests.integration.memory_recall.read_path.vectors import DIMENSIONS
from tests.integration.memory_recall.workbench import migrate_and_index
from tests.support.other_tables import OTHER_TABLES, OtherTable


@dataclass
class Store:
    """One of the tables, with what a test recalls by."""

    shape: OtherTable
    database: Database
    pool: "asyncpg.Pool[asyncpg.Record]"
    table: MemoryTable
    embedder: ChosenEmbedder
    opened: list[HybridRecall]

    async def add(self, text: str, **values: Any) -> str:
        return await self.shape.add(self.pool, text, **values)

    def recalling(self, **options: Any) -> HybridRecall:
        made = RecallOptions(**{"table": self.shape.name, "time_budget": LONG_BUDGET, **options})
        recall = HybridRecall(self.pool, self.embedder, made)
        self.opened.append(recall)
        return recall

    async def supersede(self, older: str, newer: str) -> None:
        """Record in the journal that one memory supersedes another one."""
        o, n, name, kind = self.table.row("o"), self.table.row("n"), self.table.qualified, self.table.key.stored
        await self.pool.execute(
            "INSERT INTO memory_supersessions (run, action, id, superseded_by, text_hash, successor_hash) SELECT 1,"
            f" 'UPDATE', {o.id}, {n.id}, memory_index_text_hash({o.content}), memory_index_text_hash({n.content})"
            f" FROM {name} o, {name} n WHERE {o.id} = $1::{kind} AND {n.id} = $2::{kind}",
            older,
            newer,
        )


@pytest.fixture(params=OTHER_TABLES, ids=lambda shape: shape.name)
async def store(
    request: pytest.FixtureRequest, copy_of: CopyOf, request_for: Callable[..., MigrationRequest]
) -> AsyncIterator[Store]:
    """An empty table of another program."""
    shape: OtherTable = request.param

    async def create(database: Database) -> None:
        async with database.connection() as connection:
            await connection.execute(shape.create)
        request = request_for(dimensions=DIMENSIONS, model="tiny", table=shape.name, columns=shape.names)
        await migrate_and_index(DsnText(database.dsn), request)

    database = await copy_of(f"table {shape.name}", create)
    # The session's zone is no part of what a time in the table means.
    async with asyncpg.create_pool(
        database.dsn, min_size=2, max_size=4, server_settings={"timezone": "Europe/Sofia"}
    ) as pool:
        async with database.connection() as connection:
            table = await describe(connection, shape.name)
        made = Store(shape, database, pool, table, ChosenEmbedder(), [])
        yield made
        for recall in made.opened:
            await recall.close()


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> Fetched:
    """Every recall is worth splitting, and is recorded."""
    return Fetched(monkeypatch)
