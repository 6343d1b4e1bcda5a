"""The facts that the operator reads from a real Postgres in each phase, and its reports of failed connections."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from memory_operator.api.reasons import Reason
from memory_operator.clients import database as client
from memory_operator.clients.database import DatabaseClient
from memory_operator.reconcile.facts import Problem
from memory_recall.embedding.profiles import ModelProfile
from memory_recall.postgres.connection import DsnText
from memory_recall.schema import status_sql
from memory_recall.schema.migrate import MigrationRequest, migrate
from memory_recall.status import DatabaseFacts, RowCounts
from tests.integration.conftest import CopyOf, Database
from tests.integration.memory_recall.workbench import migrate_and_index
from tests.unit.memory_operator.conftest import anywhere

MIGRATIONS = Path(__file__).resolve().parents[3] / "migrations"
REQUEST = MigrationRequest("memories", ModelProfile("tiny", 8, 256, "mean"), MIGRATIONS)


@pytest.fixture
async def migrated(copy_of: CopyOf) -> Database:
    """A database that was migrated for the operator's object, without rows."""
    return await copy_of("migrated for the operator", lambda empty: migrate(DsnText(empty.dsn), REQUEST))


async def facts(dsn: str) -> DatabaseFacts:
    found = (await DatabaseClient(anywhere).inspect(DsnText(dsn), "memories", "team")).found
    assert isinstance(found, DatabaseFacts), found
    return found


async def test_an_empty_database_offers_the_extension_and_has_no_schema(bare_database: Any) -> None:
    found = await facts(bare_database.dsn)
    assert found.extension_version is None
    assert found.extension_available is not None
    assert (found.schema_current, found.schema_revision, found.active_name) == (False, None, None)


async def test_a_migrated_database_is_current_and_has_its_model(migrated: Any) -> None:
    async with migrated.connection() as connection:
        await connection.execute("INSERT INTO memories (content, is_sensitive) VALUES ('a', false), ('b', true)")
    found = await facts(migrated.dsn)
    assert found.schema_current
    assert not found.schema_ahead
    assert (found.embedding_dimensions, found.active_name, found.index.valid) == (8, "tiny", False)
    assert (found.rows.total, found.rows.pending, found.rows.sensitive) == (2, 1, 1)


_SLOW_COUNT = "SELECT 2::bigint AS total FROM pg_sleep(30)"


@pytest.mark.parametrize("migration", ["before", "after"])
async def test_rows_that_take_too_long_to_count_are_estimated_and_the_database_is_reachable(
    migrated: Any, database: Any, monkeypatch: pytest.MonkeyPatch, migration: str
) -> None:
    """A large table that is not in memory could never be adopted."""
    monkeypatch.setattr(client, "COUNT_SECONDS", 0.05)
    monkeypatch.setattr(status_sql, "_counts_by_indexes", lambda _table: _SLOW_COUNT)
    monkeypatch.setattr(status_sql, "_counts_without_queue", lambda _table: _SLOW_COUNT)
    subject = migrated if migration == "after" else database
    async with subject.connection() as connection:
        if migration == "before":
            await connection.execute(
                "CREATE TABLE memories (id serial PRIMARY KEY, content text NOT NULL, is_sensitive boolean, "
                "deleted_at timestamptz)"
            )
        await connection.execute("INSERT INTO memories (content) SELECT 'text' FROM generate_series(1, 50)")
        await connection.execute("ANALYZE memories")
    rows = (await facts(subject.dsn)).rows
    assert rows == RowCounts(total=50, pending=50, estimated=True, uncounted=True)


async def test_where_only_the_total_takes_too_long_to_count_the_pending_rows_are_known(
    migrated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import into a large table was left to the sync worker, and its quarantined rows were shown nowhere."""
    async with migrated.connection() as connection:
        await connection.execute(
            "INSERT INTO memories (content, is_sensitive) SELECT 'text', n > 40 FROM generate_series(1, 50) n"
        )
        await connection.execute("ANALYZE memories")
    asked = status_sql.row_within

    async def row_within(connection: Any, seconds: float, query: str) -> Any:
        return None if query.startswith("SELECT count(*)") else await asked(connection, seconds, query)

    monkeypatch.setattr(status_sql, "row_within", row_within)
    rows = (await facts(migrated.dsn)).rows
    assert rows == RowCounts(total=50, pending=40, sensitive=10, estimated=True)


@pytest.mark.finding("D10")
async def test_the_file_and_the_pooling_that_made_the_vectors_are_read_as_they_were_recorded(migrated: Any) -> None:
    found = await facts(migrated.dsn)
    assert found.active_model is not None
    assert (found.active_model.digest, found.active_model.pooling) == (None, "mean"), "the first backfill records it"
    async with migrated.connection() as connection:
        await connection.execute("UPDATE memory_index_models SET digest = 'sha256:aa'")
    recorded = (await facts(migrated.dsn)).active_model
    assert recorded is not None
    assert recorded.digest == "sha256:aa"


async def test_the_widest_table_is_observed_within_what_a_server_may_send(migrated: Any) -> None:
    async with migrated.connection() as connection:
        columns = (f"ADD COLUMN {'column' * 9}{number} text" for number in range(1550))
        await connection.execute(f"ALTER TABLE memories {', '.join(columns)}")
    assert (await facts(migrated.dsn)).schema_current


async def test_the_version_of_postgres_is_read_without_what_a_distribution_adds_to_it(database: Any) -> None:
    assert (await facts(database.dsn)).server_version.replace(".", "").isdigit()


async def test_a_dropped_extension_makes_the_schema_outdated(database: Any) -> None:
    await migrate_and_index(DsnText(database.dsn), REQUEST)
    assert (await facts(database.dsn)).index.valid
    await database_superuser(database, "DROP EXTENSION vector CASCADE")
    found = await facts(database.dsn)
    assert found.extension_version is None
    assert not found.schema_current
    assert not found.index.valid


async def test_the_owner_of_the_database_is_read_from_any_role(database: Any) -> None:
    """It is compared with what the Cluster names, before a Database object names an owner."""
    name = urlsplit(database.dsn).path.removeprefix("/")
    await database_superuser(database, f'CREATE ROLE "{name}_landlord"')
    await database_superuser(database, f'ALTER DATABASE "{name}" OWNER TO "{name}_landlord"')
    assert (await facts(database.dsn)).database_owner == f"{name}_landlord"


async def test_a_revision_of_a_newer_operator_is_recognised(migrated: Any) -> None:
    async with migrated.connection() as connection:
        await connection.execute("UPDATE memory_index_alembic_version__memories SET version_num = '9999'")
    assert (await facts(migrated.dsn)).schema_ahead


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("app-password-canary", "wrong-password", Reason.AUTHENTICATION_FAILED),
        ("/test_", "/no_such_", Reason.INVALID_CONFIGURATION),
        ("127.0.0.1", "no-such-host.invalid", Reason.DATABASE_UNREACHABLE),
        ("postgresql://", "mysql://", Reason.SECRET_INVALID),
    ],
)
async def test_a_failed_connection_is_reported_without_the_connection_uri(
    bare_database: Any, old: str, new: str, reason: Reason
) -> None:
    dsn = bare_database.dsn.replace(old, new)
    problem = (await DatabaseClient(anywhere).inspect(DsnText(dsn), "memories", "team")).found
    assert isinstance(problem, Problem)
    assert problem.reason is reason
    said = f"{problem.message} {problem.remedy}"
    assert "canary" not in said
    assert "wrong-password" not in said
    assert dsn not in said


async def test_a_stopped_server_is_unreachable(own_database: Any) -> None:
    own_database.server.stop("immediate")
    problem = (await DatabaseClient(anywhere).inspect(DsnText(own_database.dsn), "memories", "team")).found
    assert isinstance(problem, Problem)
    assert problem.reason is Reason.DATABASE_UNREACHABLE


async def database_superuser(database: Any, statement: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(database.superuser_dsn)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
