"""What the transaction in which the catalog is read says of a failure, and what it leaves of the caller's own."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from asyncpg import UndefinedColumnError

from memory_recall.errors import DatabaseRejected, DatabaseUnreachable
from memory_recall.postgres.catalog_sql import reading_catalog
from memory_recall.postgres.connection import Connection, DsnText, connect
from tests.integration.conftest import Database

_COMMAND_SECONDS = 3600.0  # a statement's time limit, by which no test ends


@asynccontextmanager
async def stopped_process(database: Database) -> AsyncIterator[tuple[Connection, int]]:
    """A connection and its process of the server, which may be stopped; it goes on when the block ends."""
    connection = await connect(DsnText(database.dsn), command_timeout=_COMMAND_SECONDS)
    process = connection.get_server_pid()
    try:
        yield connection, process
    finally:
        connection.terminate()
        os.kill(process, signal.SIGCONT)


async def read_until_silent(connection: Connection, process: int, when: str, silent: asyncio.Event) -> None:
    """Read in a block with a server that falls silent before it, amid a statement, between two, or before an error."""
    if when == "before":
        os.kill(process, signal.SIGSTOP)
        silent.set()
    async with reading_catalog(connection, "reading"):
        os.kill(process, signal.SIGSTOP)
        silent.set()
        if when == "before an error":
            raise LookupError
        await (connection.execute("SELECT 1") if when == "amid" else asyncio.sleep(3600))


async def reading_has_ended(reading: asyncio.Task[None]) -> bool:
    """Whether it ends while the server is silent, well before the limit of a statement."""
    await asyncio.wait({reading}, timeout=30)
    return reading.done()


@pytest.mark.parametrize("when", ["before", "amid", "between"])
async def test_who_is_cancelled_does_not_wait_for_a_silent_server(database: Database, when: str) -> None:
    """A time limit of the caller's would otherwise be as long again as the one of a statement."""
    silent = asyncio.Event()
    async with stopped_process(database) as (connection, process):
        reading = asyncio.create_task(read_until_silent(connection, process, when, silent))
        await silent.wait()
        reading.cancel()
        assert await reading_has_ended(reading)
        assert reading.cancelled()
        assert connection.is_closed()


async def test_an_error_in_the_block_is_raised_though_the_rollback_fails(database: Database) -> None:
    silent = asyncio.Event()
    async with stopped_process(database) as (connection, process):
        reading = asyncio.create_task(read_until_silent(connection, process, "before an error", silent))
        assert await reading_has_ended(reading)
        with pytest.raises(LookupError):
            await reading
        assert connection.is_closed()


async def test_who_is_cancelled_keeps_the_connection_to_a_server_that_answers(database: Database) -> None:
    connection = await connect(DsnText(database.dsn))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5), reading_catalog(connection, "reading"):
            await connection.execute("SELECT pg_sleep(60)")
    assert not connection.is_in_transaction()
    assert await connection.fetchval("SELECT 1") == 1
    await connection.close()


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
