"""Observing databases: with which limits, and which time counts as the database's work."""

from typing import Any

import pytest

from memory_operator.api.reasons import Reason
from memory_operator.clients import database
from memory_operator.clients.database import DatabaseClient
from memory_operator.reconcile.facts import Problem
from memory_recall.errors import DatabaseUnreachable
from memory_recall.postgres.connection import DsnText
from tests.unit.memory_operator.conftest import anywhere

DSN = "postgresql://owner@pg:5432/app"


class Server:
    """A database that works for some seconds on each answer."""

    def __init__(self) -> None:
        self.seconds, self.now = 0.0, 100.0
        self.limits: dict[str, Any] = {}

    async def connect(self, *_: Any, **limits: Any) -> "Server":
        self.limits = limits
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


@pytest.mark.promise("silent-server-delays-itself")
async def test_a_connection_is_given_three_seconds(server: Server) -> None:
    await DatabaseClient(anywhere).inspect(DsnText(DSN), "memories", "team")
    assert server.limits["connect_timeout"] == 3.0


async def test_the_time_of_the_statements_counts_although_they_failed(server: Server) -> None:
    server.seconds = 7.0
    inspection = await DatabaseClient(anywhere, server.time).inspect(DsnText(DSN), "memories", "team")
    assert isinstance(inspection.found, Problem)
    assert inspection.found.reason is Reason.DATABASE_UNREACHABLE
    assert inspection.query_seconds == 7.0


@pytest.mark.finding("D9")
async def test_the_time_of_connecting_does_not_count(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that does not answer is asked again soon."""

    async def refuse(*_: Any, **__: Any) -> None:
        server.now += 3.0
        raise DatabaseUnreachable("No answer.", "")

    monkeypatch.setattr(database, "connect", refuse)
    assert (await DatabaseClient(anywhere, server.time).inspect(DsnText(DSN), "memories", "team")).query_seconds == 0.0
