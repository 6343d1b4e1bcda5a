"""Runs the migrations of a table under a lock, as far as the database permits.

Everything happens in one session, which holds the lock against other migrations. Without pgvector, the table of
memories alone is created where there is none, and no revision is recorded. If the embedding column or one of our own
tables is gone, as after DROP EXTENSION ... CASCADE, all revisions are run again. This does no harm, since each of their
statements may be repeated.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from alembic import command
from alembic.config import Config
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from memory_recall.embedding.profiles import ModelProfile
from memory_recall.errors import (
    DatabaseRejected,
    DimensionMismatch,
    ExistingVectors,
    ModelMismatch,
    SchemaUnsupported,
    SwapInProgress,
)
from memory_recall.postgres.connection import Connection, DsnSource
from memory_recall.postgres.driver_errors import translate, translated
from memory_recall.schema.adoption.active_model import replace_active_model
from memory_recall.schema.adoption.existing_vectors import (
    has_state,
    has_vectors,
    record_discard,
    some_vector,
    unknown_origin,
    vectors_indexed,
)
from memory_recall.schema.claims_sql import TableClaim, require_claimable, write_claim
from memory_recall.schema.columns.names import OTHER_EMBEDDING, ColumnNames
from memory_recall.schema.ddl import TableChanges, literal
from memory_recall.schema.definitions import look_up_partitions
from memory_recall.schema.models_sql import active_model, read_roles
from memory_recall.schema.names import index_name
from memory_recall.schema.requirements.dependents import require_no_dependents
from memory_recall.schema.requirements.faults import require_none
from memory_recall.schema.requirements.reading import table_faults
from memory_recall.schema.requirements.taken_names import read_taken_names, taken_faults
from memory_recall.schema.requirements.used_columns import names_faults
from memory_recall.schema.revision_steps import revision_steps
from memory_recall.schema.revisions import HEAD_REVISION, current_revision, version_table
from memory_recall.schema.rules.differences import describe_differences, differences, has_own_tables
from memory_recall.schema.rules.expected import triggers
from memory_recall.schema.rules.removal import remove_additions
from memory_recall.schema.rules.repair import adopt, drop_directionless, mark_adopted, restore
from memory_recall.schema.table import ACTIVE, MemoryTable, describe, quoted
from memory_recall.schema.table_locks import Work, locked_session


@dataclass(frozen=True)
class MigrationRequest:
    """What to migrate: the table, its model, the folder of revisions, and the treatment of existing vectors.

    `claim` records which MemoryIndex the table belongs to. `replaces` is the uid of a MemoryIndex whose claim ends.
    `columns` are the names of the table's columns; None takes those that are recorded, or else ours.
    """

    table: str
    model: ModelProfile
    migrations: Path
    existing_vectors: Literal["refuse", "keep", "discard"] = "refuse"
    lock_seconds: float = 600
    claim: TableClaim | None = None
    replaces: str | None = None
    columns: ColumnNames | None = None


@dataclass(frozen=True)
class MigrationResult:
    """A table's revision after a migration, and the revisions that were applied."""

    revision: str | None
    applied: list[str]


async def migrate(source: DsnSource, request: MigrationRequest) -> MigrationResult:
    """Migrate the table of memories to the last revision. The vector index is not built here.

    Raises:
        ExtensionMissing: pgvector is absent; at most the table of memories has been created.
        SchemaUnsupported, DimensionMismatch, ModelMismatch, ExistingVectors: the table cannot be migrated before a
            person decides what becomes of a column, of its vectors or of the model.
        TableTaken: another MemoryIndex has claimed the table.
    """
    async with locked_session(source, request.table, request.lock_seconds, Work.MIGRATION) as connection:
        return await _Run(connection, request).up()


async def remove(source: DsnSource, request: MigrationRequest) -> MigrationResult:
    """Remove all that the migrations have added and is still there. Memories stay, and what was there before.

    Raises:
        TableTaken: another MemoryIndex has claimed the table.
    """
    async with locked_session(source, request.table, request.lock_seconds, Work.MIGRATION) as connection:
        return await _Run(connection, request).down()


class _Run:
    """One run of the migrations, in the database session that holds the migration lock."""

    def __init__(self, connection: Connection, request: MigrationRequest) -> None:
        self._connection = connection
        self._request = request
        self._applied: list[str] = []

    async def up(self) -> MigrationResult:
        table = await self._described_claimable()
        taken = await read_taken_names(self._connection, table)
        faults = [*names_faults(table, self._request.columns), *await table_faults(self._connection, table)]
        require_none([*faults, *taken_faults(table, taken)])
        if table.exists:
            table.require_extension()
        await self._check(table)
        await self._require_unique_ids_in_partitions(table)
        table = await self._described()
        await self._begin_anew_where_tables_are_gone(table)
        if (await current_revision(self._connection, table) or "") < HEAD_REVISION:
            await self._upgrade(table)
            table = await self._described()
        await self._adopt_model(table)
        await self._restore_rules(table)
        await write_claim(self._connection, table, self._request.claim, self._request.replaces)
        return MigrationResult(await current_revision(self._connection, table), self._applied)

    async def _restore_rules(self, table: MemoryTable) -> None:
        """Restore triggers and other rules that are missing or differ, unless a later release migrated the table."""
        if await current_revision(self._connection, table) != HEAD_REVISION:
            return
        if found := await differences(self._connection, table):
            changes = self._changes(table)
            await changes.limit_waiting()
            await restore(changes, found)
            for partition in found.new:
                await self._adopt(changes, partition)
        if differing := await describe_differences(self._connection, table):
            raise SchemaUnsupported(
                f"The rules of table {table.schema}.{table.name} cannot be restored: {differing}.",
                "Look for something that changes them, such as an event trigger.",
            )

    async def _adopt(self, changes: TableChanges, partition: str) -> None:
        """Adopt a new partition; the request says whether vectors that it has are kept or discarded.

        Raises:
            ExistingVectors: it has vectors, and the request says neither.
        """
        if self._request.existing_vectors == "keep":
            await drop_directionless(changes, partition)
            await mark_adopted(changes, partition)
        elif not await adopt(changes, partition, discard=self._request.existing_vectors == "discard"):
            raise _undecided(
                f"Partition {partition} is new and has vectors, and nobody knows which model made them.",
                "the active model",
            )

    async def down(self) -> MigrationResult:
        table = await self._described_claimable()
        await remove_additions(self._changes(table))
        return MigrationResult(None, [])

    async def _described_claimable(self) -> MemoryTable:
        table = await self._described()
        await require_claimable(self._connection, table, self._request.claim, self._request.replaces)
        return table

    async def _described(self) -> MemoryTable:
        return await describe(self._connection, self._request.table, self._request.columns)

    async def _begin_anew_where_tables_are_gone(self, table: MemoryTable) -> None:
        """Forget which migrations have run if somebody has dropped the tables that they made, so that all run again."""
        if await current_revision(self._connection, table) is None or await has_own_tables(self._connection, table):
            return
        with translated("beginning the migrations anew"):
            await self._connection.execute(f"DELETE FROM {table.in_schema(version_table(table))}")

    async def _check(self, table: MemoryTable) -> None:
        """Refuse a table whose embedding column does not fit the model, unless the column may be replaced."""
        model = self._request.model
        vector = table.vector_name(ACTIVE)
        if vector in table.catalog and table.embedding_dimensions != model.dimensions:
            if await self._may_be_replaced(table):
                await self._drop_empty_column(table)
                return
            raise DimensionMismatch(
                f"{table.schema}.{table.name}.{vector} has {table.embedding_dimensions} dimensions; "
                f"model {model.name} yields {model.dimensions}.",
                "Choose a model of the column's dimensions, or leave it to others and name a column of our own "
                f"with MEMORY_COLUMNS (in a cluster, spec.database.columns): embedding: {OTHER_EMBEDDING}. A column "
                "that holds no vector is made again where existing vectors may be discarded.",
            )
        await self._check_existing_vectors(table)

    async def _require_unique_ids_in_partitions(self, table: MemoryTable) -> None:
        """Refuse a partitioned table in which a row of a new partition has the id of another row.

        The table's key need not forbid this, but failures, journal and recalls know a memory by its id alone. Before
        the first migration every partition is new. Partitions that have been adopted are not compared with one another
        again, because this would read all of their ids in each run.
        """
        partitions = await look_up_partitions(self._connection, table.schema, table.qualified)
        new = [name for name, found in partitions.items() if found["new"]]
        if not new:
            return
        key = table.row().id
        among = " UNION ALL ".join(f"SELECT {key} FROM {name}" for name in new)
        chosen = f"WHERE {key} IN ({among})" if len(new) < len(partitions) else ""
        with translated("looking for ids that occur twice"):
            twice = await self._connection.fetchval(
                f"SELECT {key} FROM {table.qualified} {chosen} GROUP BY {key} HAVING count(*) > 1 LIMIT 1"
            )
        if twice is not None:
            shown = f"the id {twice}" if table.key.stored != "text" else "one id"  # a text may tell what it is about
            raise SchemaUnsupported(
                f"Several rows of {table.schema}.{table.name} have {shown}.",
                "Give each memory an id of its own, from one sequence for all partitions.",
            )

    async def _may_be_replaced(self, table: MemoryTable) -> bool:
        """Return whether the embedding column may be replaced.

        The request must allow to discard vectors, the column must be empty, and no model swap may be open.
        """
        if self._request.existing_vectors != "discard" or table.standby_dimensions is not None:
            return False
        return await self._changes(table).value(f"SELECT NOT {some_vector(table)}") is True

    async def _drop_empty_column(self, table: MemoryTable) -> None:
        """Drop the empty embedding column and its triggers. This fails if a vector has been stored since the check."""
        vector, changes = table.vector_name(ACTIVE), self._changes(table)
        await require_no_dependents(self._connection, table, [vector])
        body = f"""
            BEGIN
                PERFORM set_config('enable_seqscan', 'off', true);
                IF {some_vector(table)} THEN RAISE check_violation; END IF;
            END"""
        statements = [
            f"LOCK TABLE {table.qualified} IN ACCESS EXCLUSIVE MODE",
            f"DO LANGUAGE plpgsql {literal(body)}",
            *(f"DROP TRIGGER IF EXISTS {trigger.name} ON {table.qualified}" for trigger in triggers(table)),
            f"ALTER TABLE {table.qualified} DROP COLUMN {vector}",
        ]
        async with vectors_indexed(changes):
            await changes.limit_waiting()
            await changes.run_together(statements)

    async def _check_existing_vectors(self, table: MemoryTable) -> None:
        """Refuse vectors of unknown origin, unless the request says that they are kept or discarded.

        Raises:
            ExistingVectors: the request says neither.
        """
        revision = await current_revision(self._connection, table)
        if table.embedding_dimensions is None or (revision or "") > HEAD_REVISION:
            return
        unknown = await unknown_origin(self._connection, table, migrated=revision is not None)
        decision = self._request.existing_vectors
        if not unknown or decision == "keep" or not await has_vectors(self._changes(table)):
            return
        if decision == "refuse":
            raise _undecided(
                f"{table.schema}.{table.name} holds vectors that may be of another model or text: {unknown}.",
                self._request.model.name,
            )
        if await has_state(self._connection, table):
            await record_discard(self._connection, table)

    async def _adopt_model(self, table: MemoryTable) -> None:
        """Make the requested model the active one if it is not yet.

        Raises:
            ModelMismatch: the table holds another model's vectors.
            SwapInProgress: another model is active, and a swap is neither finished nor aborted.
        """
        model, roles = self._request.model, await read_roles(self._connection, table)
        if roles.active is None:
            raise DatabaseRejected("The state table is empty.", "Run memory migrate again; if it stays so, restore it.")
        if roles.active.describes(model):
            return
        if table.standby_dimensions is None:
            await replace_active_model(self._changes(table), roles.active.id, model)
        active = await active_model(self._connection, table)
        if active.describes(model):
            return
        if roles.next or table.standby_dimensions is not None:
            raise SwapInProgress(
                f"{table.schema}.{table.name} has a swap that is neither finished nor aborted; its active model is "
                f"{active.name}, not {model.name}.",
                "Go back to the active model, or end the swap with memory swap finish or memory swap abort.",
            )
        raise ModelMismatch(
            f"The vectors in {table.schema}.{table.name} are of model {active.name}, not {model.name}.",
            "Go back to that model, or swap models with memory swap.",
        )

    def _changes(self, table: MemoryTable) -> TableChanges:
        return TableChanges(self._connection, table, self._request.lock_seconds)

    def _placeholders(self, table: MemoryTable) -> dict[str, str]:
        """Return the values of the placeholders in the revisions' SQL; migrations/env.py explains the placeholders."""
        model, (search,) = self._request.model, (one.column for one in table.names.of("search_vector"))
        return {
            "schema": quoted(table.schema),
            "table": table.qualified,
            "table_literal": literal(table.qualified),
            "name_literal": literal(table.name),
            "search_index": quoted(index_name(table.name, "search")),
            "user_index": quoted(index_name(table.name, "user")),
            "updated_index": quoted(index_name(table.name, "updated")),
            "suffix": table.suffix.replace('"', '""'),
            "vectors": quoted(table.vector_schema or "public"),
            "dimensions": str(model.dimensions),
            "vector_column": table.vector_name(ACTIVE),
            "adopted": "false" if table.embedding_dimensions is None else "true",
            "discarding": "true" if self._request.existing_vectors == "discard" else "false",
            "model": literal(model.name),
            "pooling": "NULL" if model.pooling is None else literal(model.pooling),
            "max_tokens": "NULL" if model.max_tokens is None else str(model.max_tokens),
            "query_prefix": literal(model.query_prefix),
            "document_prefix": literal(model.document_prefix),
            "key": table.key.stored,
            "search_column": quoted(search),
            "search_added": "true" if table.names.has_own_search_column else "false",
            "search_literal": literal(search),
            "column_names": literal(table.names.to_json()),
        }

    async def _upgrade(self, table: MemoryTable) -> None:
        """Have Alembic run the revisions that the table lacks, in the session that holds the lock."""
        config = Config()
        config.set_main_option("script_location", str(self._request.migrations).replace("%", "%%"))
        config.attributes |= {
            "version_table": version_table(table),
            "version_schema": table.schema,
            "applied": self._applied,
            "steps": partial(revision_steps, self._changes(table), self._placeholders(table)),
        }
        engine = create_async_engine("postgresql+asyncpg://", async_creator=self._lend, poolclass=NullPool)
        borrowed = await engine.connect()
        try:
            await _run_alembic(borrowed, config)
        except DBAPIError as error:
            cause = getattr(error.orig, "__cause__", None) or error.orig or error
            failure = translate(cause, f"migrating to {HEAD_REVISION}")
            error.args, error.statement, error.params = ("withheld",), None, None
            raise failure from None
        finally:
            with_raw = await borrowed.get_raw_connection()
            with_raw.detach()  # the session, and the lock with it, stays ours

    async def _lend(self) -> Connection:
        return self._connection


def _undecided(message: str, model: str) -> ExistingVectors:
    return ExistingVectors(
        message,
        "Run memory migrate --existing-vectors discard (in a cluster, set spec.database.existingVectors: Discard) to "
        f"make them anew, or keep (Keep) if {model} made every one of them from the present text.",
    )


async def _run_alembic(borrowed: AsyncConnection, config: Config) -> None:
    def work(connection: Any) -> None:  # noqa: ANN401  (Alembic wants the synchronous façade as it is)
        config.attributes["connection"] = connection
        command.upgrade(config, HEAD_REVISION)

    await borrowed.run_sync(work)
    await borrowed.commit()
