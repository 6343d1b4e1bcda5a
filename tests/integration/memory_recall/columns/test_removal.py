"""`memory migrate --to base` removes what is there and ours, also after a first migration that failed."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from memory_recall.errors import DatabaseRejected, LockNotAvailable
from memory_recall.postgres.connection import DsnText
from memory_recall.schema import ddl
from memory_recall.schema.migrate import MigrationRequest, migrate, remove
from tests.integration.conftest import Database
from tests.integration.memory_recall.columns.test_faulty_tables import _EVERYTHING as EVERYTHING
from tests.integration.memory_recall.workbench import Workbench

Requests = Callable[..., MigrationRequest]
NOTES = "CREATE TABLE notes (id bigint PRIMARY KEY, content text, is_sensitive boolean, deleted_at timestamptz{more})"


async def objects(database: Database) -> str:
    async with database.connection() as connection:
        return str(await connection.fetchval(EVERYTHING))


async def migrated_until(database: Database, request: MigrationRequest, statements: int, monkeypatch: object) -> bool:
    """Migrate, and fail at the statement of this number; return whether there were so many."""
    left = [statements]
    run = ddl.TableChanges.run

    async def failing(self: ddl.TableChanges, statement: str) -> int:
        left[0] -= 1
        if left[0] < 0:
            raise DatabaseRejected("Enough.")
        return await run(self, statement)

    monkeypatch.setattr(ddl.TableChanges, "run", failing)  # type: ignore[attr-defined]
    try:
        await migrate(DsnText(database.dsn), request)
    except DatabaseRejected:
        return True
    finally:
        monkeypatch.setattr(ddl.TableChanges, "run", run)  # type: ignore[attr-defined]
    return False


@pytest.mark.parametrize("adopted", [False, True])
@pytest.mark.finding("database F18")
async def test_what_a_failed_first_migration_has_left_is_removed(
    database: Database, request_for: Requests, adopted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails at each third of its statements in turn; a column that was there before stays."""
    async with database.connection() as connection:
        await connection.execute(NOTES.format(more=", embedding halfvec(8)" if adopted else ""))
    before, request, reached = await objects(database), request_for(table="notes"), 0
    while await migrated_until(database, request, reached, monkeypatch):
        await remove(DsnText(database.dsn), request)
        assert await objects(database) == before, reached
        reached += 3
    assert reached > 9
    await remove(DsnText(database.dsn), request)
    assert await objects(database) == before


@pytest.mark.parametrize("gone", ["TABLE memory_index_state", "TABLE memory_embedding_failures", "TABLE notes"])
@pytest.mark.finding("database F18")
async def test_what_others_have_dropped_is_not_missed(database: Database, request_for: Requests, gone: str) -> None:
    async with database.connection() as connection:
        await connection.execute(NOTES.format(more=""))
        await migrate(DsnText(database.dsn), request_for(table="notes"))
        await connection.execute(f"DROP {gone} CASCADE")
    await remove(DsnText(database.dsn), request_for(table="notes"))
    assert "memory_" not in (await objects(database)).replace("memory_index_no_private_embedding", "")


@pytest.mark.finding("database F18")
async def test_a_table_that_was_never_migrated_loses_nothing_of_its_neighbour(
    database: Database, request_for: Requests
) -> None:
    async with database.connection() as connection:
        await connection.execute(NOTES.format(more=""))
    await migrate(DsnText(database.dsn), request_for())
    before = await objects(database)
    await remove(DsnText(database.dsn), replace(request_for(), table="notes"))
    assert await objects(database) == before


async def test_a_memory_can_be_deleted_at_any_moment_of_a_removal(
    bench: Workbench, request_for: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each statement a row with a vector is marked as deleted, and so is one at the end."""
    database = bench.database
    await bench.insert("embedded")
    await bench.backfill()
    moments = 0

    async def delete_and_roll_back() -> None:
        nonlocal moments
        async with database.connection() as user:
            transaction = user.transaction()
            await transaction.start()
            await user.execute("UPDATE memories SET deleted_at = now()")
            await transaction.rollback()
        moments += 1

    def after_a_deletion(work: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def watched(self: ddl.TableChanges, statement: str) -> Any:
            await delete_and_roll_back()
            return await work(self, statement)

        return watched

    for name in ("run", "drop_index"):
        monkeypatch.setattr(ddl.TableChanges, name, after_a_deletion(getattr(ddl.TableChanges, name)))
    await remove(DsnText(database.dsn), request_for())
    await delete_and_roll_back()
    assert moments > 10


async def test_a_removal_that_waits_for_a_reader_lets_writers_pass(
    bench: Workbench, request_for: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dropped_already(_self: ddl.TableChanges, _name: str) -> None: ...

    monkeypatch.setattr(ddl.TableChanges, "drop_index", dropped_already)
    database = bench.database
    async with database.connection() as reader, database.connection() as writer:
        await reader.execute("BEGIN; SELECT FROM memories")
        removal = asyncio.create_task(remove(DsnText(database.dsn), request_for(lock_seconds=60)))
        await bench.until_locked_out(removal)
        await writer.execute("SET lock_timeout = '2s'")
        for _ in range(10):
            await writer.execute("INSERT INTO memories (content) VALUES ('text')")
        assert not removal.done()
        await reader.execute("ROLLBACK")
        await removal


async def test_a_removal_held_up_by_a_reader_ends_with_an_error_and_the_rules_still_hold(
    migrated: Database, request_for: Requests
) -> None:
    async with migrated.connection() as reader, migrated.connection() as writer:
        await reader.execute("BEGIN; SELECT FROM memories")
        with pytest.raises(LockNotAvailable, match="stayed locked"):
            await remove(DsnText(migrated.dsn), request_for(lock_seconds=0.2))
        await reader.execute("ROLLBACK")
        await writer.execute(f"INSERT INTO memories (content, embedding) VALUES ('text', '{[1.0] * 8}')")
        await writer.execute("UPDATE memories SET is_sensitive = true")
        assert await writer.fetchval("SELECT count(*) FROM memories WHERE embedding IS NULL") == 1
    await remove(DsnText(migrated.dsn), request_for())
