"""Work is done only in the database that was meant, and a table is worked on for one MemoryIndex alone."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import urlsplit

import asyncpg
import pytest

from memory_recall.errors import DatabaseIdentityMismatch, DatabaseRejected, InvalidConfiguration, TableTaken
from memory_recall.postgres.connection import DsnFile, DsnText, create_pool, opened
from memory_recall.postgres.identity_sql import DatabaseIdentity, read_identity
from memory_recall.schema.claims_sql import TableClaim
from memory_recall.schema.migrate import MigrationRequest, migrate, remove
from memory_recall.settings import Settings
from memory_recall.status import inspect
from tests.integration.conftest import Database

Requests = Callable[..., MigrationRequest]
PUBLIC_FUNCTION = "{} EXECUTE ON FUNCTION pg_control_system() {} PUBLIC"


async def identity_of(database: Database) -> DatabaseIdentity:
    async with opened(DsnText(database.dsn), "test") as connection:
        return await read_identity(connection)


async def as_superuser(database: Database, statement: str) -> None:
    connection = await asyncpg.connect(database.superuser_dsn)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def present_claim(database: Database, table: str = "memories") -> TableClaim | None:
    async with database.connection() as connection:
        return (await inspect(connection, table)).claim


def claim_of(identity: DatabaseIdentity, name: str, uid: str) -> TableClaim:
    named = identity.cluster_name or ""
    return TableClaim(identity.system_identifier, "team", name, uid, "2026-01-01T12:00:00Z", cluster_name=named)


async def test_the_application_role_can_read_the_system_identifier(bare_database: Database) -> None:
    found = await identity_of(bare_database)
    assert found.system_identifier.isdigit()
    assert found.name == bare_database.name
    assert DatabaseIdentity.parse(str(found)) == found


async def test_a_role_without_the_right_to_read_it_gets_the_statement_that_grants_it(own_database: Database) -> None:
    await as_superuser(own_database, PUBLIC_FUNCTION.format("REVOKE", "FROM"))
    with pytest.raises(DatabaseRejected, match="GRANT EXECUTE ON FUNCTION pg_control_system"):
        await identity_of(own_database)
    async with own_database.connection() as connection:
        assert (await inspect(connection, "memories")).identity is None


@pytest.mark.parametrize("part", ["system_identifier", "cluster_name", "name"])
@pytest.mark.finding("operator F2")
async def test_a_migration_for_another_database_changes_nothing(
    database: Database, request_for: Requests, part: str
) -> None:
    other = {"system_identifier": "1", "cluster_name": "original", "name": "elsewhere"}
    expected = replace(await identity_of(database), **{part: other[part]})
    with pytest.raises(DatabaseIdentityMismatch, match="nothing was done"):
        await migrate(DsnText(database.dsn, expected), request_for())
    async with database.connection() as connection:
        assert await connection.fetchval("SELECT to_regclass('memories')") is None


@pytest.mark.finding("D2")
async def test_the_removal_of_what_migrations_added_spares_another_database(
    migrated: Database, request_for: Requests
) -> None:
    elsewhere = DatabaseIdentity("1", migrated.name)
    with pytest.raises(DatabaseIdentityMismatch):
        await remove(DsnText(migrated.dsn, elsewhere), request_for())
    async with migrated.connection() as connection:
        assert (await inspect(connection, "memories")).embedding_dimensions == 8


@pytest.mark.finding("operator F3")
async def test_a_claim_that_came_with_a_physical_copy_is_replaced(migrated: Database, request_for: Requests) -> None:
    """The claim names the original's cluster; here the copy is the test's own server, which has another name."""
    identity = await identity_of(migrated)
    theirs = replace(claim_of(identity, "original", "u-1"), cluster_name="original")
    await migrate(DsnText(migrated.dsn), replace(request_for(), claim=theirs))
    mine = claim_of(identity, "copy", "u-2")
    await migrate(DsnText(migrated.dsn, identity), replace(request_for(), claim=mine))
    async with migrated.connection() as connection:
        assert (await inspect(connection, "memories")).claim == mine


async def test_every_connection_of_a_pool_is_checked(bare_database: Database) -> None:
    with pytest.raises(DatabaseIdentityMismatch):
        await create_pool(DsnText(bare_database.dsn, DatabaseIdentity("1", bare_database.name)))
    pool = await create_pool(DsnText(bare_database.dsn, await identity_of(bare_database)))
    assert await pool.fetchval("SELECT 1") == 1
    await pool.close()


async def test_a_refusal_names_neither_the_database_that_was_reached_nor_a_password(bare_database: Database) -> None:
    with pytest.raises(DatabaseIdentityMismatch) as refused:
        async with opened(DsnText(bare_database.dsn, replace(await identity_of(bare_database), name="other")), "test"):
            pass
    assert bare_database.name not in str(refused.value)
    assert str(urlsplit(bare_database.dsn).password) not in str(refused.value)


def test_the_settings_hand_the_identity_to_every_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY_DATABASE_URL_FILE", "/run/dsn")
    monkeypatch.setenv("MEMORY_DATABASE_IDENTITY", "7400000000000000000/app")
    source = Settings().dsn()
    assert isinstance(source, DsnFile)
    assert source.identity == DatabaseIdentity("7400000000000000000", "app")
    monkeypatch.setenv("MEMORY_DATABASE_IDENTITY", "app")
    with pytest.raises(InvalidConfiguration, match="SYSTEM_IDENTIFIER/NAME"):
        Settings().dsn()


async def test_a_migration_claims_the_table_for_its_object(database: Database, request_for: Requests) -> None:
    first = claim_of(await identity_of(database), "first", "u-1")
    assert await present_claim(database) is None
    await migrate(DsnText(database.dsn), request_for(claim=first))
    assert await present_claim(database) == first
    await migrate(DsnText(database.dsn), request_for())
    assert await present_claim(database) == first, "a migration for nobody leaves the claim"


async def test_another_object_can_neither_migrate_the_table_nor_undo_its_migrations(
    migrated: Database, request_for: Requests
) -> None:
    identity = await identity_of(migrated)
    await migrate(DsnText(migrated.dsn), request_for(claim=claim_of(identity, "first", "u-1")))
    second = request_for(claim=claim_of(identity, "second", "u-2"))
    with pytest.raises(TableTaken, match="team/first"):
        await migrate(DsnText(migrated.dsn), second)
    with pytest.raises(TableTaken, match="team/first"):
        await remove(DsnText(migrated.dsn), second)
    async with migrated.connection() as connection:
        assert (await inspect(connection, "memories")).embedding_dimensions == 8


async def test_of_objects_that_claim_a_table_at_the_same_time_one_gets_it(
    database: Database, request_for: Requests
) -> None:
    identity = await identity_of(database)
    claims = [claim_of(identity, f"object-{number}", f"u-{number}") for number in range(4)]
    outcomes = await asyncio.gather(
        *(migrate(DsnText(database.dsn), request_for(claim=claim)) for claim in claims), return_exceptions=True
    )
    winners = [claim for claim, outcome in zip(claims, outcomes, strict=True) if not isinstance(outcome, Exception)]
    assert [await present_claim(database)] == winners
    assert sum(isinstance(outcome, TableTaken) for outcome in outcomes) == 3


async def test_a_former_objects_claim_ends_only_where_it_is_named(migrated: Database, request_for: Requests) -> None:
    identity = await identity_of(migrated)
    former, present = claim_of(identity, "first", "u-1"), claim_of(identity, "first", "u-2")
    await migrate(DsnText(migrated.dsn), request_for(claim=former))
    with pytest.raises(TableTaken):
        await migrate(DsnText(migrated.dsn), request_for(claim=present, replaces="u-0"))
    await migrate(DsnText(migrated.dsn), request_for(claim=present, replaces="u-1"))
    assert await present_claim(migrated) == present


@pytest.mark.parametrize("table", ["memories", "Notes"])
async def test_the_owner_of_the_database_ends_by_a_statement_the_claim_that_it_names_and_no_other(
    database: Database, request_for: Requests, table: str
) -> None:
    identity = await identity_of(database)
    former, later = claim_of(identity, "first", "u-1"), claim_of(identity, "second", "u-2")
    for number, one in enumerate(("memories", "Notes")):
        bystander = claim_of(identity, "third", f"u-{3 + number}")
        await migrate(DsnText(database.dsn), request_for(table=one, claim=former if one == table else bystander))
    async with database.connection() as connection:
        with pytest.raises(asyncpg.NoDataFoundError):
            await connection.execute(later.ending())
        assert await present_claim(database, table) == former
        await connection.execute(former.ending())
        assert await present_claim(database, table) is None
        await migrate(DsnText(database.dsn), request_for(table=table, claim=later))
        with pytest.raises(asyncpg.NoDataFoundError):
            await connection.execute(former.ending())
    assert await present_claim(database, table) == later, "what has ended one claim ends no later one"
    assert await present_claim(database, "Notes" if table == "memories" else "memories") is not None


async def test_a_superuser_who_ends_a_claim_runs_no_function_that_another_role_has_made(
    migrated: Database, request_for: Requests
) -> None:
    """Who owns a database decides in which schemas the sessions of a superuser look first."""
    claim = claim_of(await identity_of(migrated), "first", "u-1")
    await migrate(DsnText(migrated.dsn), request_for(claim=claim))
    async with migrated.connection() as connection:
        await connection.execute(
            "CREATE FUNCTION public.format(text, regclass) RETURNS text LANGUAGE plpgsql "
            "AS $$BEGIN RAISE 'run as %', current_user; END$$;"
            "CREATE FUNCTION public.obj_description(oid, name) RETURNS text LANGUAGE plpgsql "
            "AS $$BEGIN RAISE 'run as %', current_user; END$$;"
            f"ALTER DATABASE {migrated.name} SET search_path = public, pg_catalog"
        )
    await as_superuser(migrated, claim.ending())
    assert await present_claim(migrated) is None


async def test_a_person_can_end_the_claim_of_an_object_that_is_gone(migrated: Database, request_for: Requests) -> None:
    former = claim_of(await identity_of(migrated), "first", "u-1")
    await migrate(DsnText(migrated.dsn), request_for(claim=former))
    await migrate(DsnText(migrated.dsn), request_for(replaces="u-0"))
    assert await present_claim(migrated) == former, "another object's claim stays"
    await migrate(DsnText(migrated.dsn), request_for(replaces="u-1"))
    assert await present_claim(migrated) is None


@pytest.mark.promise("hostile-server-stays-in-place")
async def test_a_claim_from_another_server_binds_nobody(migrated: Database, request_for: Requests) -> None:
    """It came with a dump that was restored here."""
    identity = await identity_of(migrated)
    elsewhere = replace(claim_of(identity, "first", "u-1"), system_identifier="1")
    await migrate(DsnText(migrated.dsn), request_for(claim=elsewhere))
    here = claim_of(identity, "second", "u-2")
    await migrate(DsnText(migrated.dsn), request_for(claim=here))
    assert await present_claim(migrated) == here


async def test_each_table_of_a_schema_has_a_claim_of_its_own(database: Database, request_for: Requests) -> None:
    identity = await identity_of(database)
    claims = {"memories": claim_of(identity, "first", "u-1"), "notes": claim_of(identity, "second", "u-2")}
    for table, claim in claims.items():
        await migrate(DsnText(database.dsn), request_for(table=table, claim=claim))
    assert {table: await present_claim(database, table) for table in claims} == claims
