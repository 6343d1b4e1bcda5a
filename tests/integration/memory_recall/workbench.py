"""What the worker tests stand on: a migrated database with rows, a real HTTP embedder, and a plan with short pauses."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pgvector import HalfVector
from pgvector.asyncpg import register_vector

from memory_recall.embedding.client import EmbedderClient
from memory_recall.errors import MemoryIndexError
from memory_recall.hnsw.repair import IndexParameters, build_index
from memory_recall.indexing.backfill import BackfillResult, backfill
from memory_recall.indexing.pipeline import BatchLimits, PipelineOptions
from memory_recall.indexing.progress import Tally
from memory_recall.indexing.quarantine_sql import RetryPolicy
from memory_recall.indexing.queue_sql import WorkerShare
from memory_recall.indexing.worker import WorkerPlan
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.migrate import MigrationRequest, MigrationResult, migrate
from tests.integration.conftest import Database
from tests.integration.memory_recall.fake_embedder import FakeEmbedder, vector_of

DIMENSIONS = 8
INDEX = IndexParameters()
_EMBEDDED = "SELECT count(embedding) FROM memories"
EmbeddedAgain = Callable[["Workbench", Collection[str], Mapping[str, int]], int]


@dataclass
class Ear:
    """Remembers what a worker said."""

    outages: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    total: int = 0

    def started(self, total: int) -> None:
        self.total = total

    def advanced(self, tally: Tally) -> None:
        pass

    def outage_began(self, what: str, error: MemoryIndexError) -> None:
        self.outages.append(what)
        self.reasons.append(error.reason)

    def outage_ended(self, what: str, seconds: float) -> None:
        pass

    def attempt_failed(self, what: str, error: MemoryIndexError, wait: object) -> None:
        pass

    def wait_ended(self, wait: object) -> None:
        pass


@dataclass
class Workbench:
    """One test's database, embedder and plan."""

    database: Database
    embedder: FakeEmbedder
    ear: Ear = field(default_factory=Ear)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    client_timeout: float = 10.0
    plan: WorkerPlan = field(
        default_factory=lambda: WorkerPlan(
            table="memories",
            outage_timeout=60,
            options=PipelineOptions(
                limits=BatchLimits(tokens=100_000, rows=8), policy=RetryPolicy(3, 0.01), concurrency=3
            ),
        )
    )

    def with_options(self, **changes: Any) -> WorkerPlan:
        return replace(self.plan, options=replace(self.plan.options, **changes))

    async def backfill(self, plan: WorkerPlan | None = None) -> BackfillResult:
        async with self.client() as client:
            return await backfill(
                DsnText(self.database.dsn), client, plan or self.plan, progress=self.ear, stop=self.stop
            )

    def client(self) -> EmbedderClient:
        return EmbedderClient(self.embedder.url, "tiny", timeout=self.client_timeout)

    def environment(self, **more: str) -> dict[str, str]:
        return {
            "MEMORY_DATABASE_URL": self.database.dsn,
            "MEMORY_EMBEDDER_URL": self.embedder.url,
            "MEMORY_MODEL": "tiny",
            "MEMORY_DIMENSIONS": str(DIMENSIONS),
            "MEMORY_LOG_FORMAT": "json",
            **more,
        }

    async def insert(self, *texts: str) -> None:
        async with self.database.connection() as connection:
            await connection.executemany("INSERT INTO memories (content) VALUES ($1)", [(text,) for text in texts])

    async def execute(self, statement: str) -> None:
        async with self.database.connection() as connection:
            await connection.execute(statement)

    async def value(self, query: str) -> Any:
        async with self.database.connection() as connection:
            return await connection.fetchval(query)

    async def embedded(self) -> int:
        return int(await self.value(_EMBEDDED))

    async def until_value(self, query: str, accepted: Callable[[Any], object] = bool) -> None:
        """Wait until the answer of a query is accepted; if nothing else is said, until it is true or not 0."""
        async with asyncio.timeout(120), self.database.connection() as connection:
            while not accepted(await connection.fetchval(query)):  # noqa: ASYNC110  (it is the database that changes)
                await asyncio.sleep(0.01)

    async def until_locked_out(self, task: "asyncio.Future[Any]", mode: str = "%") -> None:
        """Wait until a session waits for a lock of a mode (a pattern of LIKE), before the task is done."""
        waiting = (
            "SELECT EXISTS (SELECT FROM pg_locks JOIN pg_stat_activity USING (pid)"
            f" WHERE NOT granted AND mode LIKE '{mode}' AND datname = current_database())"
        )
        await self.until_value(waiting, lambda found: found or task.done())
        assert not task.done()

    async def until_embedded(self, goal: int) -> None:
        await self.until_value(_EMBEDDED, lambda rows: rows >= goal)

    async def problems(self) -> list[tuple[int, str]]:
        """The invariant: every row that may have a vector has that of its present text, and no other has one."""
        found = []
        async with self.database.connection() as connection:
            await register_vector(connection)
            for row in await connection.fetch(
                "SELECT id, content, embedding, is_sensitive OR deleted_at IS NOT NULL AS private FROM memories"
            ):
                if row["private"] != (row["embedding"] is None):
                    found.append((row["id"], "private" if row["private"] else "missing"))
                elif row["embedding"] is not None and row["embedding"] != HalfVector(
                    vector_of(row["content"], DIMENSIONS)
                ):
                    found.append((row["id"], "stale"))
        return found


async def until(condition: Callable[[], object]) -> None:
    """Wait for what happens elsewhere."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  (what is awaited happens elsewhere)
            await asyncio.sleep(0.01)


async def migrate_and_index(
    source: DsnText, request: MigrationRequest, parameters: IndexParameters = INDEX
) -> MigrationResult:
    """A database at the last revision whose vector index is built."""
    result = await migrate(source, request)
    await build_index(source, request.table, parameters)
    return result


@contextlib.asynccontextmanager
async def workbench(database: Database, request: MigrationRequest) -> AsyncIterator[Workbench]:
    """A migrated database and a running embedder."""
    await migrate(DsnText(database.dsn), request)
    async with FakeEmbedder(dimensions=DIMENSIONS) as embedder:
        yield Workbench(database, embedder)


def share(index: int, count: int) -> WorkerShare:
    return WorkerShare(index, count)
