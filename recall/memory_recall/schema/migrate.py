"""Runs the migrations: finds out where the database stands, takes the lock, and goes as far as is possible.

Everything happens in one session, so that the lock that keeps other migrators out cannot outlive or be outlived by
the work. A revision whose needs are not met (pgvector absent) is not run and not stamped; the next run finds it still
to do. A database that claims a revision whose objects are gone, as after DROP EXTENSION ... CASCADE, is set back and
migrated again.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

import asyncio
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from alembic import command
from alembic.config import Config
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from memory_recall.errors import (
    DatabaseRejected,
    DimensionMismatch,
    ExistingVectors,
    ExtensionMissing,
    LockNotAvailable,
    ModelMismatch,
    SchemaUnsupported,
)
from memory_recall.hnsw.definition import DEFAULT_EF_CONSTRUCTION, DEFAULT_M, inspect_index
from memory_recall.hnsw.repair import IndexWish, after_build, before_build, with_less_memory
from memory_recall.postgres.connection import Connection, DsnSource, connect, require_session
from memory_recall.postgres.driver_errors import translate, translated
from memory_recall.schema.ddl import MigrationTarget, TargetModel
from memory_recall.schema.revisions import (
    HEAD_REVISION,
    INDEX_REVISION,
    SCHEMA_REVISION,
    SWAP_REVISION,
    VERSION_TABLE,
    current_revision,
)
from memory_recall.schema.table import EMBEDDING_COLUMN, MemoryTable, describe

_LOCK_KEY = 0x6D656D6F_72796978  # "memoryix"; one migrator per database


@dataclass(frozen=True)
class MigrationRequest:
    """What a migration is asked for."""

    table: str
    model: TargetModel
    migrations: Path
    index_m: int = DEFAULT_M
    index_ef_construction: int = DEFAULT_EF_CONSTRUCTION
    existing_vectors: Literal["refuse", "keep", "discard"] = "refuse"
    lock_patience_seconds: float = 600
    maintenance_memory: str | None = None


@dataclass(frozen=True)
class MigrationResult:
    """Where the database stands now and which revisions this run applied."""

    revision: str | None
    applied: list[str]


async def migrate(source: DsnSource, request: MigrationRequest, *, to: Literal["schema", "head"]) -> MigrationResult:
    """Bring the database up to `schema` (all but the HNSW index) or `head`.

    Raises:
        ExtensionMissing: pgvector is absent; what does not need it has been done.
        SchemaUnsupported, DimensionMismatch, ModelMismatch, ExistingVectors: a person has to decide.
    """
    connection = await connect(source, application_name="memory-migrate")
    try:
        await require_session(connection)
        await _take_lock(connection, request.lock_patience_seconds)
        run = _Run(connection, request)
        return await run.up(SCHEMA_REVISION if to == "schema" else HEAD_REVISION)
    finally:
        connection.terminate()


async def remove(source: DsnSource, request: MigrationRequest) -> MigrationResult:
    """Remove what the migrations added, in reverse; memories and what was there before stay."""
    connection = await connect(source, application_name="memory-migrate")
    try:
        await require_session(connection)
        await _take_lock(connection, request.lock_patience_seconds)
        return await _Run(connection, request).down()
    finally:
        connection.terminate()


async def _take_lock(connection: Connection, patience: float) -> None:
    """Try, rather than wait inside Postgres: a waiting statement would hold back CREATE INDEX CONCURRENTLY."""
    deadline = time.monotonic() + patience
    while True:
        with translated("taking the migration lock"):
            if await connection.fetchval("SELECT pg_try_advisory_lock($1)", _LOCK_KEY):
                return
        if time.monotonic() >= deadline:
            raise LockNotAvailable(
                f"Another migration has been running for {patience:.0f} s.", "Let it end, or end its session."
            )
        await asyncio.sleep(0.25)


class _Run:
    """One migration run in one locked session."""

    def __init__(self, connection: Connection, request: MigrationRequest) -> None:
        self._connection = connection
        self._request = request
        self._applied: list[str] = []

    async def up(self, goal: str) -> MigrationResult:
        table = await self._described()
        if await current_revision(self._connection, table) is None:
            await self._upgrade(table, "0001")
            table = await self._described()
        table.require_supported()
        await self._require_extension(table)
        await self._check(table)
        if await self._has_drifted(table):
            await self._alembic(table, "stamp", "0001")
        for revision in (SCHEMA_REVISION, INDEX_REVISION, SWAP_REVISION, HEAD_REVISION):
            if revision == INDEX_REVISION and goal == HEAD_REVISION:
                await self._prepare_index_build(table)
            if revision <= goal and (await current_revision(self._connection, table) or "") < revision:
                await with_less_memory(self._connection, partial(self._upgrade, table, revision))
                table = await self._described()
        if goal == HEAD_REVISION:
            await after_build(self._connection, table)
        await self._adopt_model(table)
        return MigrationResult(await current_revision(self._connection, table), self._applied)

    async def _prepare_index_build(self, table: MemoryTable) -> None:
        """Clear what interrupted builds left, and set back a database whose index is not there or not valid."""
        request = self._request
        wish = IndexWish(request.index_m, request.index_ef_construction, request.maintenance_memory)
        await before_build(self._connection, table, wish)
        stamped = (await current_revision(self._connection, table) or "") >= INDEX_REVISION
        if stamped and not (await inspect_index(self._connection, table)).valid:
            await self._alembic(table, "stamp", SCHEMA_REVISION)

    async def down(self) -> MigrationResult:
        table = await self._described()
        revision = await current_revision(self._connection, table)
        if revision is not None:
            await self._alembic(table, "downgrade", "base")
            with translated("dropping the version table"):
                await self._connection.execute(f"DROP TABLE IF EXISTS {table.own(VERSION_TABLE)}")
        return MigrationResult(None, [])

    async def _described(self) -> MemoryTable:
        return await describe(self._connection, self._request.table)

    async def _upgrade(self, table: MemoryTable, revision: str) -> None:
        await self._alembic(table, "upgrade", revision)
        self._applied.append(revision)

    async def _require_extension(self, table: MemoryTable) -> None:
        if table.vector_schema is None:
            raise ExtensionMissing(
                "The extension vector (pgvector) does not exist in this database.",
                "Let the operator's Database object create it, or have a superuser run CREATE EXTENSION vector.",
            )

    async def _check(self, table: MemoryTable) -> None:
        """Refuse what only a person can decide, before anything is changed."""
        model = self._request.model
        column = table.columns.get(EMBEDDING_COLUMN)
        if column is not None and column.rpartition(".")[2] != "halfvec":
            raise SchemaUnsupported(
                f"{table.schema}.{table.name}.embedding is {column}, not halfvec({model.dimensions}).",
                "Rename or drop that column; its vectors can be made again.",
            )
        if column is not None and table.embedding_dimensions != model.dimensions:
            raise DimensionMismatch(
                f"{table.schema}.{table.name}.embedding has {table.embedding_dimensions} dimensions; "
                f"model {model.name} yields {model.dimensions}.",
                "Choose a model of the column's dimensions, or drop the column so that it is made again.",
            )
        await self._check_existing_vectors(table)

    async def _check_existing_vectors(self, table: MemoryTable) -> None:
        if table.embedding_dimensions is None or self._request.existing_vectors != "refuse":
            return
        with translated("looking for existing vectors"):
            if await self._connection.fetchval("SELECT to_regclass($1)", table.own("memory_index_state")) is not None:
                return
            unknown = await self._connection.fetchval(
                f"SELECT EXISTS (SELECT FROM {table.qualified} WHERE {EMBEDDING_COLUMN} IS NOT NULL)"
            )
        if unknown:
            raise ExistingVectors(
                f"{table.schema}.{table.name} already holds vectors, and nobody recorded which model made them.",
                f"Run with --existing-vectors discard to make them anew, or keep if {self._request.model.name} made "
                "every one of them from the present text.",
            )

    async def _has_drifted(self, table: MemoryTable) -> bool:
        """Whether objects of the second revision have gone although it is stamped."""
        if (await current_revision(self._connection, table) or "") < SCHEMA_REVISION:
            return False
        with translated("checking the schema"):
            intact = await self._connection.fetchval(
                "SELECT to_regclass($2) IS NOT NULL AND to_regclass($3) IS NOT NULL "
                "AND (SELECT count(*) = 2 FROM pg_trigger WHERE tgrelid = to_regclass($1) AND tgenabled = 'A' "
                "     AND tgname IN ('zz_memory_index_insert', 'zz_memory_index_update')) "
                "AND EXISTS (SELECT FROM pg_constraint WHERE conrelid = to_regclass($1) AND convalidated "
                "     AND conname = 'memory_index_no_private_embedding')",
                table.qualified,
                table.own("memory_index_state"),
                table.own(f"idx_{table.name}_embedding_pending"),
            )
        return table.embedding_dimensions is None or not intact

    async def _adopt_model(self, table: MemoryTable) -> None:
        """Make the requested model the active one where no vector speaks against it."""
        model = self._request.model
        state, models = table.own("memory_index_state"), table.own("memory_index_models")
        with translated("checking the active model"):
            row = await self._connection.fetchrow(
                f"SELECT s.table_name, m.name FROM {state} s JOIN {models} m ON m.id = s.active_model"
            )
        if row is None:
            raise DatabaseRejected("The state table is empty.", "Run memory migrate again; if it stays so, restore it.")
        if row["table_name"] != table.name:
            raise SchemaUnsupported(
                f"Schema {table.schema} already holds the index of table {row['table_name']}.",
                "Index one table per schema.",
            )
        if row["name"] == model.name:
            return
        with translated("changing the active model"):
            changed = await self._connection.fetchval(
                f"UPDATE {models} SET name = $1, digest = NULL, pooling = $2, max_tokens = $3, query_prefix = $4, "
                f"document_prefix = $5 WHERE id = (SELECT active_model FROM {state}) "
                f"AND NOT EXISTS (SELECT FROM {table.qualified} WHERE {EMBEDDING_COLUMN} IS NOT NULL) RETURNING id",
                model.name,
                model.pooling,
                model.max_tokens,
                model.query_prefix,
                model.document_prefix,
            )
        if changed is None:
            raise ModelMismatch(
                f"The vectors in {table.schema}.{table.name} are of model {row['name']}, not {model.name}.",
                "Go back to that model, or swap models with memory swap.",
            )

    def _target(self, table: MemoryTable) -> MigrationTarget:
        request = self._request
        return MigrationTarget(
            table=table,
            model=request.model,
            index_m=request.index_m,
            index_ef_construction=request.index_ef_construction,
            discard_existing_vectors=request.existing_vectors == "discard",
            lock_patience_seconds=request.lock_patience_seconds,
        )

    async def _alembic(self, table: MemoryTable, action: str, revision: str) -> None:
        """Run one of Alembic's commands on our own session."""
        config = Config()
        config.set_main_option("script_location", str(self._request.migrations).replace("%", "%%"))
        config.attributes["target"] = self._target(table)
        engine = create_async_engine("postgresql+asyncpg://", async_creator=self._lend, poolclass=NullPool)
        borrowed = await engine.connect()
        try:
            await _run_alembic(borrowed, config, action, revision)
        except DBAPIError as error:
            cause = getattr(error.orig, "__cause__", None) or error.orig or error
            failure = translate(cause, f"migrating to {revision}")
            error.args, error.statement, error.params = ("withheld",), None, None
            raise failure from None
        finally:
            with_raw = await borrowed.get_raw_connection()
            with_raw.detach()  # the session, and the lock with it, stays ours

    async def _lend(self) -> Connection:
        return self._connection


async def _run_alembic(borrowed: AsyncConnection, config: Config, action: str, revision: str) -> None:
    def work(connection: Any) -> None:  # noqa: ANN401  (Alembic wants the synchronous façade as it is)
        config.attributes["connection"] = connection
        getattr(command, action)(config, revision)

    await borrowed.run_sync(work)
    await borrowed.commit()
