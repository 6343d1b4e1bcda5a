"""What a real Postgres may send where the operator observes it, and where a worker reads texts."""

from typing import Any

import pytest

from memory_recall.errors import ProtocolViolation
from memory_recall.postgres.connection import DsnText, connect
from memory_recall.postgres.driver_errors import translated
from memory_recall.postgres.receive_limit import receiving_at_most

LIMIT = 100_000
HERE = {"127.0.0.1": ["127.0.0.1"]}
TEXT = "SELECT repeat('x', 1000000)"


async def received(database: Any, *statements: str) -> None:
    """Read each statement's rows over a connection of its own; together they may receive 100,000 bytes."""
    with receiving_at_most(LIMIT, HERE) as loop:
        for statement in statements:
            connection = await connect(DsnText(database.dsn), loop=loop)
            with translated("reading"):
                await connection.fetch(statement)
            await connection.close()


async def test_a_worker_reads_a_text_of_any_size(bare_database: Any) -> None:
    connection = await connect(DsnText(bare_database.dsn))
    assert len(await connection.fetchval(TEXT)) == 1_000_000
    await connection.close()


@pytest.mark.promise("hostile-server-memory-bounded")
@pytest.mark.parametrize(
    "statements",
    [(TEXT,), ("SELECT generate_series(1, 100000)",), ("SELECT repeat('x', 60000)",) * 2],
    ids=["one large value", "many small rows", "two connections"],
)
async def test_a_connection_is_closed_at_an_answer_beyond_its_limit(
    bare_database: Any, statements: tuple[str, ...]
) -> None:
    with pytest.raises(ProtocolViolation, match="100000 bytes"):
        await received(bare_database, *statements)


async def test_a_connection_serves_until_its_limit(bare_database: Any) -> None:
    await received(bare_database, "SELECT repeat('x', 60000)")


async def test_a_statement_is_cancelled_on_a_limited_connection(bare_database: Any) -> None:
    """Cancelling opens another connection, by the same event loop."""
    with receiving_at_most(LIMIT, HERE) as loop:
        connection = await connect(DsnText(bare_database.dsn), loop=loop)
        with pytest.raises(TimeoutError):
            await connection.execute("SELECT pg_sleep(600)", timeout=0.05)
        assert await connection.fetchval("SELECT 1") == 1
        await connection.close()


async def test_values_of_the_permitted_types_are_read_however_often_a_statement_is_executed(bare_database: Any) -> None:
    statements = {
        "SELECT true, 'c'::\"char\", 'n'::name, 1::bigint, 2::smallint, 3, 'text', 4::oid, 5.5::float8": 9,
        "SELECT '{}'::json, '{\"a\": 1}'::jsonb, now(), 'pg_class'::regclass, 'v'::varchar, NULL::text": 6,
    }
    with receiving_at_most(LIMIT, HERE) as loop:
        connection = await connect(DsnText(bare_database.dsn), loop=loop)
        for statement, columns in [*statements.items(), *statements.items()]:
            assert len(await connection.fetchrow(statement)) == columns
        await connection.close()
