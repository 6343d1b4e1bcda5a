"""What the tests of other programs' tables stand on: such a table, migrated as it is, with a running embedder."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from memory_recall.hnsw.repair import build_index
from memory_recall.postgres.connection import DsnText, opened
from memory_recall.schema.columns.keys import MemoryId
from memory_recall.schema.migrate import MigrationRequest, migrate
from memory_recall.schema.revisions import require_schema
from memory_recall.schema.table import ACTIVE, MemoryTable, VectorColumn
from memory_recall.settings import Settings
from tests.integration.conftest import CopyOf, Database
from tests.integration.memory_recall.fake_embedder import FakeEmbedder
from tests.integration.memory_recall.workbench import DIMENSIONS, INDEX, Workbench
from tests.support.stores import STORES, Store

BOILER, KETTLE, STOVE = "Marit bled the boiler.", "Tobin descaled the kettle.", "Marit swept the stove."
SECRET = "The canary opens the safe with 4711."


@dataclass
class StoreBench:
    """One test's table of another program, and what works on it."""

    store: Store
    work: Workbench

    @property
    def source(self) -> DsnText:
        return DsnText(self.work.database.dsn)

    async def add(self, text: str, *, secret: bool = False) -> MemoryId:
        """Add a memory as the other program does; return its id."""
        added: MemoryId = await self.value(self.store.insert, text, "7", secret)
        return added

    async def execute(self, statement: str, *arguments: object) -> None:
        async with self.work.database.connection() as connection:
            await connection.execute(statement, *arguments)

    async def value(self, statement: str, *arguments: object) -> Any:
        async with self.work.database.connection() as connection:
            return await connection.fetchval(statement, *arguments)

    async def table(self) -> MemoryTable:
        async with opened(self.source, "test") as connection:
            return await require_schema(connection, self.store.table)

    async def embedded(self, column: VectorColumn = ACTIVE) -> set[MemoryId]:
        """The ids of the rows that have a vector."""
        table = await self.table()
        there = f"{table.vector_name(column)} IS NOT NULL"
        rows = f"SELECT {table.key.shown(table.row('m').id)} AS id FROM {table.qualified} m WHERE {there}"
        async with self.work.database.connection() as connection:
            return {row["id"] for row in await connection.fetch(rows)}

    async def index(self) -> None:
        await build_index(self.source, self.store.table, INDEX)

    def settings(self, monkeypatch: pytest.MonkeyPatch) -> Settings:
        """The settings of a command that works on the table."""
        for name, value in self.work.environment(MEMORY_TABLE=self.store.table).items():
            monkeypatch.setenv(name, value)
        return Settings()

    def text(self, text: str) -> str:
        """The text of a memory that was added with this text, as it is embedded."""
        return f"A title\n\n{text}" if "title" in self.store.create else text


@pytest.fixture(params=STORES, ids=lambda store: store.name)
async def adopted(
    request: pytest.FixtureRequest, copy_of: CopyOf, request_for: Callable[..., MigrationRequest]
) -> AsyncIterator[StoreBench]:
    """A migrated table of each kind of key, name and source, which is empty."""
    store: Store = request.param

    async def make(empty: Database) -> None:
        async with opened(DsnText(empty.dsn), "test") as connection:
            await connection.execute(store.create)
        await migrate(DsnText(empty.dsn), request_for(table=store.table, columns=store.names))

    database = await copy_of(f"the store with {store.name}", make)
    async with FakeEmbedder(dimensions=DIMENSIONS) as embedder:
        work = Workbench(database, embedder)
        work.plan = replace(work.plan, table=store.table)
        yield StoreBench(store, work)


def only(*names: str) -> pytest.MarkDecorator:
    """Run a test on the stores of these names alone."""
    chosen = [store for store in STORES if store.name in names]
    return pytest.mark.parametrize("adopted", chosen, ids=[store.name for store in chosen], indirect=True)
