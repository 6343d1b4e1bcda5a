"""What the swap tests stand on: a filled and indexed table, the active model's embedder, and the next one's."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from pgvector import HalfVector
from pgvector.asyncpg import register_vector

from memory_recall.embedding.client import EmbedderClient
from memory_recall.embedding.served_model import ServedModel
from memory_recall.hnsw.repair import IndexParameters
from memory_recall.indexing.embedders import EmbedderDirectory
from memory_recall.postgres.connection import DsnText, connect
from memory_recall.schema.migrate import MigrationRequest
from memory_recall.schema.models_sql import Roles, read_roles
from memory_recall.schema.revisions import require_schema
from memory_recall.swap import state_sql
from memory_recall.swap.process import Measure, SwapProcess, SwapRequest
from memory_recall.swap.state_sql import SwapRecord
from tests.integration.conftest import CopyOf, Database
from tests.integration.memory_recall.fake_embedder import FakeEmbedder, vector_of
from tests.integration.memory_recall.workbench import DIMENSIONS, Workbench, migrate_and_index, workbench

NEXT_SALT = "next:"

T = TypeVar("T")


async def at_once(work: Callable[[], Awaitable[T]], /) -> T:
    """Waits for nothing that is away."""
    return await work()


def halved(text: str, salt: str, dimensions: int) -> HalfVector:
    return HalfVector(vector_of(salt + text, dimensions))


@dataclass
class SwapBench:
    """One test's table, its two embedders, and the swap between them."""

    work: Workbench
    following: FakeEmbedder
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def source(self) -> DsnText:
        return DsnText(self.work.database.dsn)

    def target(self, **changes: Any) -> ServedModel:
        served = self.following
        given = {"name": served.model, "dimensions": served.dimensions, "digest": served.digest, **changes}
        return ServedModel(**given)

    async def swap(
        self,
        *,
        back: bool = False,
        measure: Measure | None = None,
        flip: bool = True,
        target: ServedModel | None = None,
        lock_seconds: float = 20,
    ) -> SwapRecord:
        configured = self.work.embedder if back or target else self.following
        request = SwapRequest(
            target=None if back else target or self.target(),
            worker=self.work.plan,
            index=IndexParameters(),
            flip=flip,
            lock_seconds=lock_seconds,
        )
        client = EmbedderClient(configured.url, configured.model, timeout=10)
        async with (
            client,
            EmbedderDirectory(
                client,
                lambda url, name: EmbedderClient(url, name, timeout=10),
                model=client.model or "",
                url=client.base_url,
            ) as directory,
        ):
            process = SwapProcess(
                self.source, directory, request, measure=measure, progress=self.work.ear, stop=self.stop
            )
            return await process.run()

    async def latest(self) -> SwapRecord | None:
        connection = await connect(self.source)
        try:
            return await state_sql.latest(connection, await require_schema(connection, "memories"))
        finally:
            connection.terminate()

    async def end(self, stage: str) -> None:
        connection = await connect(self.source)
        try:
            table = await require_schema(connection, "memories")
            swap = await state_sql.latest(connection, table)
            assert swap is not None
            await state_sql.end(connection, table, swap, stage, give_up_after=10)
        finally:
            connection.terminate()

    async def roles(self) -> Roles:
        connection = await connect(self.source)
        try:
            return await read_roles(connection, await require_schema(connection, "memories"))
        finally:
            connection.terminate()

    async def problems(self, *, complete: bool = True) -> list[tuple[int, str, str]]:
        """The invariant of both columns: vectors of public rows only, of their present text and the column's model."""
        roles = await self.roles()
        active_salt = NEXT_SALT if roles.active.name == self.following.model else ""
        other_salt = "" if active_salt else NEXT_SALT
        found = []
        async with self.work.database.connection() as connection:
            await register_vector(connection)
            for row in await connection.fetch("SELECT * FROM memories"):
                for column, salt in (("embedding", active_salt), ("embedding_standby", other_salt)):
                    vector = row.get(column)
                    private = row["is_sensitive"] or row["deleted_at"] is not None
                    if vector is None:
                        if column == "embedding" and complete and not private:
                            found.append((row["id"], column, "missing"))
                    elif private:
                        found.append((row["id"], column, "private"))
                    elif vector != halved(row["content"], salt, vector.dimensions()):
                        found.append((row["id"], column, "stale or of another model"))
        return found


@pytest.fixture
async def swaps(copy_of: CopyOf, request_for: Callable[..., MigrationRequest]) -> AsyncIterator[SwapBench]:
    """Forty embedded and indexed rows, and a next model of the same length."""

    async def fill(empty: Database) -> None:
        async with workbench(empty, request_for()) as bench:
            await bench.insert(*(f"text {number}" for number in range(40)))
            await bench.backfill()
            await migrate_and_index(DsnText(empty.dsn), request_for())

    database = await copy_of("forty embedded and indexed rows", fill)
    async with (
        FakeEmbedder(dimensions=DIMENSIONS) as active,
        FakeEmbedder(dimensions=DIMENSIONS, model="small", digest="sha256:bb") as following,
    ):
        following.salt = NEXT_SALT
        bench = SwapBench(Workbench(database, active), following)
        await bench.work.execute(f"UPDATE memory_index_models SET embedder_url = '{active.url}'")
        yield bench
