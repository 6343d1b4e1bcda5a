"""`memory migrate --to base` removes what is there and ours, also after a first migration that failed."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from memory_recall.errors import DatabaseRejected
from memory_recall.postgres.connection import DsnText
from memory_recall.schema import ddl
from memory_recall.schema.migrate import MigrationRequest, migrate, remove
from tests.integration.conftest import Database
from tests.integration.memory_recall.columns.test_faulty_tables import _EVERYTHING as EVERYTHING

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
