"""A worker's session is ended neither by the role's limits of time nor kept by a server whose client is gone."""

import asyncio

import asyncpg
import pytest

from memory_recall.postgres import session as sessions
from memory_recall.postgres.connection import DsnText
from memory_recall.postgres.session import Session, opened_session
from tests.integration.memory_recall.workbench import Workbench

_LIMITS = (
    "statement_timeout", "lock_timeout", "idle_session_timeout", "idle_in_transaction_session_timeout",
    "transaction_timeout",
)  # fmt: skip
_SETTINGS = "SELECT name || '=' || setting FROM pg_settings WHERE name = ANY ($1) AND setting <> '0'"


@pytest.fixture
async def limited(bench: Workbench) -> Workbench:
    """A database in which the role's statements, waits and pauses may take a second."""
    for row in await bench.value("SELECT array_agg(name) FROM pg_settings WHERE name LIKE '%\\_timeout'"):
        if row in _LIMITS:
            await bench.execute(f"ALTER ROLE app IN DATABASE {bench.database.name} SET {row} = '999ms'")
    return bench


async def test_the_limits_of_time_of_a_role_do_not_end_a_migration_an_index_build_or_a_swap(limited: Workbench) -> None:
    source = DsnText(limited.database.dsn)
    async with opened_session(source, "test") as connection:
        assert [row[0] for row in await connection.fetch(_SETTINGS, _LIMITS)] == []
    async with Session(source, name="test", listener=limited.ear) as session:
        rows = await session.run(lambda connection: connection.fetch(_SETTINGS, _LIMITS))
    assert [row[0] for row in rows] == ["lock_timeout=1000"]


async def test_a_statement_ends_soon_after_its_client_is_gone(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session's leases end with it; no request to cancel the statement is sent."""
    monkeypatch.setitem(sessions._OF_ABANDONED, "client_connection_check_interval", "100ms")
    sleeping = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'abandoned'"
    session = Session(DsnText(bench.database.dsn), name="abandoned", listener=bench.ear)
    task = asyncio.create_task(session.run(lambda connection: connection.fetchval("SELECT pg_sleep(300)")))
    await bench.until_value(f"{sleeping} AND wait_event = 'PgSleep'")
    session.close()
    with pytest.raises(asyncpg.ConnectionDoesNotExistError):
        await task
    await bench.until_value(sleeping, lambda count: count == 0)
