"""Observing databases: how many at a time, with which limits, and which time counts as the database's work."""

import asyncio
from typing import Any

import pytest

from memory_operator.api.reasons import Reason
from memory_operator.app import WORKERS
from memory_operator.clients import database
from memory_operator.clients.database import CONCURRENT_OBSERVATIONS, DatabaseClient, DatabasesBusyError
from memory_operator.reconcile.facts import Problem
from memory_recall.errors import DatabaseUnreachable

WAIT_SECONDS = 10.0  # after which a test fails that would hang
DSN = "postgresql://owner@pg:5432/app"


class Server:
    """A database that accepts connections once it may, and works for some seconds on each answer."""

    def __init__(self) -> None:
        self.accepts = asyncio.Event()
        self.arrived = asyncio.Semaphore(0)
        self.seconds, self.now = 0.0, 100.0
        self.limits: dict[str, Any] = {}

    async def connect(self, *_: Any, **limits: Any) -> "Server":
        self.limits = limits
        self.arrived.release()
        await self.accepts.wait()
        return self

    async def inspect(self, *_: Any) -> Any:
        self.now += self.seconds
        raise DatabaseUnreachable("The connection was lost.", "")

    async def close(self, **_: Any) -> None:
        return

    def time(self) -> float:
        return self.now


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    found = Server()
    monkeypatch.setattr(database, "connect", found.connect)
    monkeypatch.setattr(database.status, "inspect", found.inspect)
    return found


async def test_databases_that_do_not_answer_occupy_a_limited_number_of_places_and_nobody_waits(server: Server) -> None:
    client = DatabaseClient(limit=2)
    blocked = [asyncio.create_task(client.inspect(DSN, "memories")) for _ in range(2)]
    for _ in blocked:
        await server.arrived.acquire()
    with pytest.raises(DatabasesBusyError):
        await asyncio.wait_for(client.inspect(DSN, "memories"), WAIT_SECONDS)
    server.accepts.set()
    await asyncio.gather(*blocked)
    assert isinstance((await client.inspect(DSN, "memories")).found, Problem), "the places are free again"


def test_some_workers_are_left_however_many_databases_do_not_answer() -> None:
    assert WORKERS - CONCURRENT_OBSERVATIONS >= 4


async def test_a_connection_is_given_three_seconds(server: Server) -> None:
    server.accepts.set()
    await DatabaseClient().inspect(DSN, "memories")
    assert server.limits["connect_timeout"] == 3.0


async def test_the_time_of_the_statements_counts_although_they_failed(server: Server) -> None:
    server.accepts.set()
    server.seconds = 7.0
    inspection = await DatabaseClient(clock=server.time).inspect(DSN, "memories")
    assert isinstance(inspection.found, Problem)
    assert inspection.found.reason is Reason.DATABASE_UNREACHABLE
    assert inspection.query_seconds == 7.0


async def test_the_time_of_connecting_does_not_count(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that does not answer is asked again soon."""

    async def refuse(*_: Any, **__: Any) -> None:
        server.now += 3.0
        raise DatabaseUnreachable("No answer.", "")

    monkeypatch.setattr(database, "connect", refuse)
    assert (await DatabaseClient(clock=server.time).inspect(DSN, "memories")).query_seconds == 0.0
