"""A migrated database with a small model, and an embedder whose vectors the test chooses."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

import asyncpg
import pytest

from memory_recall.postgres.connection import DsnText, create_pool
from memory_recall.search.hybrid_recall import HybridRecall
from memory_recall.search.options import RecallOptions
from tests.integration.conftest import CopyOf, Database
from tests.integration.memory_recall.read_path.rows import fill
from tests.integration.memory_recall.read_path.splitting import Fetched
from tests.integration.memory_recall.read_path.vectors import DIMENSIONS, axis
from tests.integration.memory_recall.workbench import migrate_and_index

LONG_BUDGET = 60.0  # seconds for a recall, where a test does not ask how long one may take
_STATEMENT_SECONDS = 300.0  # a table of thousands of rows is filled by one call, on a machine that may stand still


@dataclass
class ChosenEmbedder:
    """Returns the vectors that a test gives it; an exception in place of a vector is raised."""

    vectors: dict[str, Sequence[float] | Exception] = field(default_factory=dict)
    model: str | None = "tiny"
    calls: list[str] = field(default_factory=list)

    async def embed_query(self, text: str) -> Sequence[float]:
        self.calls.append(text)
        found = self.vectors.get(text, axis(1.0))
        if isinstance(found, Exception):
            raise found
        return found


@dataclass
class Memories:
    """The table of memories under test."""

    pool: "asyncpg.Pool[asyncpg.Record]"
    opened: list[HybridRecall] = field(default_factory=list)

    async def add(
        self,
        content: str,
        *,
        vector: Sequence[float] | None = None,
        importance: float = 0.5,
        category: str = "facts",
        tags: str = "",
        user_id: str = "default",
        sensitive: bool = False,
        deleted: bool = False,
        created_at: datetime | None = None,
        expanded_keywords: str = "",
    ) -> int:
        return int(
            await self.pool.fetchval(
                "INSERT INTO memories (content, importance, category, tags, user_id, is_sensitive, deleted_at,"
                " created_at, expanded_keywords, embedding) VALUES ($1, $2, $3, $4, $5, $6,"
                " CASE WHEN $7 THEN now() END,"
                " coalesce($8, now()), $9, $10::real[]::halfvec) RETURNING id",
                content, importance, category, tags, user_id, sensitive, deleted, created_at, expanded_keywords,
                None if vector is None else list(vector),
            )
        )  # fmt: skip

    def recalling(self, embedder: Any = None, **options: Any) -> HybridRecall:
        recall = HybridRecall(self.pool, embedder, RecallOptions(**{"time_budget": LONG_BUDGET, **options}))
        self.opened.append(recall)
        return recall


FillTable = Callable[[Memories], Awaitable[None]]


class CopyWith(Protocol):
    """As `CopyOf`, of a database whose table of memories is filled by `fill_table`."""

    async def __call__(self, contents: str, fill_table: FillTable, *, shared: bool = False) -> Database: ...


@pytest.fixture
async def database(copy_of: CopyOf, request_for: Callable[..., Any]) -> Database:
    """A database with an empty table of memories, with embedding column, rules and HNSW index."""
    request = request_for(dimensions=DIMENSIONS, model="tiny")
    return await copy_of("migrated and indexed", lambda empty: migrate_and_index(DsnText(empty.dsn), request))


@asynccontextmanager
async def open_memories(database: Database) -> AsyncIterator[Memories]:
    """The table of memories of a database; at the end its recalls and connections are closed."""
    pool = await create_pool(DsnText(database.dsn), max_size=4, command_timeout=_STATEMENT_SECONDS)
    store = Memories(pool)
    try:
        yield store
    finally:
        for recall in store.opened:
            await recall.close()
        await pool.close()


async def report_jit(database: Database) -> None:
    """Have Postgres say in this database that it compiles statements, which one without LLVM never does."""
    admin = await asyncpg.connect(database.superuser_dsn)
    await admin.execute(
        "CREATE OR REPLACE FUNCTION pg_catalog.pg_jit_available() RETURNS boolean LANGUAGE sql AS 'SELECT true'"
    )
    await admin.close()


@pytest.fixture
async def memories(database: Database) -> AsyncIterator[Memories]:
    """An empty table of memories with embedding column, rules and HNSW index."""
    async with open_memories(database) as store:
        yield store


@pytest.fixture
async def copy_with(copy_of: CopyOf, request_for: Callable[..., Any]) -> CopyWith:
    """Gives a database whose table of memories was filled once in the session."""

    async def copy(contents: str, fill_table: FillTable, *, shared: bool = False) -> Database:
        async def fill_database(empty: Database) -> None:
            await migrate_and_index(DsnText(empty.dsn), request_for(dimensions=DIMENSIONS, model="tiny"))
            async with open_memories(empty) as store:
                await fill_table(store)

        return await copy_of(contents, fill_database, shared=shared)

    return copy


@pytest.fixture
def embedder() -> ChosenEmbedder:
    """An embedder without vectors yet."""
    return ChosenEmbedder()


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> Fetched:
    """Every recall is worth splitting, and is recorded."""
    return Fetched(monkeypatch)


async def fill_rankings(memories: Memories) -> None:
    """Insert the rows of `filled`."""
    await fill(memories)
    await memories.pool.execute("INSERT INTO memories (content) SELECT 'ripe tomatoes' FROM generate_series(1, 120)")
    await memories.add(f"tomatoes {'and much else ' * 30}", vector=axis(1.0, 0.01))
    for number in range(6):
        await memories.add(f"zfs scrub without a vector {number}")
        await memories.add(f"zfs password {number} is hunter2", sensitive=True)
        await memories.add(f"scrub the pool {number}", vector=axis(1.0, number / 3), user_id="ana")
    await memories.pool.execute("ANALYZE memories")


@pytest.fixture
async def filled_database(copy_with: CopyWith) -> Database:
    """A database with the rows of `filled`."""
    return await copy_with("rankings", fill_rankings)


@pytest.fixture
async def filled(filled_database: Database) -> AsyncIterator[Memories]:
    """Rows whose terms, vectors and importance disagree, some without a vector, sensitive, or another user's.

    One is near by its vector and contains a term that so many others contain more often that the lexical leg does not
    score it.
    """
    async with open_memories(filled_database) as store:
        async with store.pool.acquire(), store.pool.acquire():
            pass  # so that two connections are idle
        yield store
