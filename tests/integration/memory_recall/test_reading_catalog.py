"""What the transaction in which the catalog is read says of a failure, and what it leaves of the caller's own."""

import pytest
from asyncpg import UndefinedColumnError

from memory_recall.errors import DatabaseRejected, DatabaseUnreachable
from memory_recall.postgres.catalog_sql import reading_catalog
from memory_recall.postgres.connection import DsnText, connect
from tests.integration.conftest import Database


async def test_a_transaction_that_cannot_begin_is_the_error_and_not_that_it_cannot_be_rolled_back(
    database: Database,
) -> None:
    """Within a transaction that has failed, Postgres refuses every statement with SQLSTATE 25P02."""
    connection = await connect(DsnText(database.dsn))
    transaction = connection.transaction()
    await transaction.start()
    with pytest.raises(UndefinedColumnError):
        await connection.execute("SELECT no_such_column")
    with pytest.raises(DatabaseRejected) as refused:
        async with reading_catalog(connection, "reading"):
            pytest.fail("the block ran without a transaction")
    assert refused.value.sqlstate == "25P02"
    await transaction.rollback()
    await connection.close()


async def test_a_session_that_ends_in_the_block_is_the_error_and_not_the_lack_of_a_transaction(
    database: Database,
) -> None:
    connection = await connect(DsnText(database.dsn))
    with pytest.raises(DatabaseUnreachable) as lost:
        async with reading_catalog(connection, "reading"):
            await connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    assert "ConnectionDoesNotExistError" in str(lost.value)


async def test_what_the_block_sets_and_what_it_takes_part_in_are_kept_apart(database: Database) -> None:
    """The caller's transaction goes on after the block with the caller's own search path."""
    connection = await connect(DsnText(database.dsn))
    await connection.execute("CREATE TABLE kept (number integer)")
    async with connection.transaction():
        await connection.execute("SET LOCAL search_path = public")
        await connection.execute("INSERT INTO kept VALUES (1)")
        async with reading_catalog(connection, "reading"):
            assert await connection.fetchval("SHOW search_path") == "pg_catalog, pg_temp"
        assert await connection.fetchval("SHOW search_path") == "public"
    assert await connection.fetchval("SELECT number FROM kept") == 1
    await connection.close()
