"""A connection ends when the server's node has died, though the client waits for a result and sends nothing."""

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest

from memory_recall.postgres.connection import Connection, DsnText, connect, create_pool, opened
from memory_recall.postgres.receive_limit import receiving_at_most
from memory_recall.postgres.session import opened_session
from tests.integration.conftest import Database

Open = Callable[[DsnText], AbstractAsyncContextManager[Connection]]


@asynccontextmanager
async def of_a_pool(source: DsnText) -> AsyncIterator[Connection]:
    pool = await create_pool(source)
    async with pool.acquire() as borrowed:
        yield borrowed._con
    await pool.close()


@asynccontextmanager
async def of_the_operator(source: DsnText) -> AsyncIterator[Connection]:
    with receiving_at_most(1_000_000, {"127.0.0.1": ["127.0.0.1"]}) as loop:
        connection = await connect(source, loop=loop)
    yield connection
    connection.terminate()


def by_name(source: DsnText) -> AbstractAsyncContextManager[Connection]:
    return opened(source, "test")


def as_session(source: DsnText) -> AbstractAsyncContextManager[Connection]:
    return opened_session(source, "test")


@pytest.mark.parametrize("opens", [by_name, as_session, of_a_pool, of_the_operator])
async def test_the_kernel_asks_a_silent_server_whether_it_is_there_and_gives_up_within_about_a_minute(
    database: Database, opens: Open
) -> None:
    """A build of an index takes hours and has no time limit of its own, so nothing else would notice."""
    async with opens(DsnText(database.dsn)) as connection:
        used = connection._transport.get_extra_info("socket")
        assert used.family == socket.AF_INET
        assert used.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        idle, interval, count, unacknowledged = (
            used.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
        )
        assert 30 <= idle + interval * count <= 90
        assert 30_000 <= unacknowledged <= 90_000
        assert await connection.fetchval("SELECT 1") == 1
