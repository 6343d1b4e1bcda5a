"""A worker's session is ended neither by the role's limits of time nor kept by a server whose client is gone."""

import pytest

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
