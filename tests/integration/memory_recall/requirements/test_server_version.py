"""A server that lacks a function of our statements is named before anything is changed."""

from collections.abc import Callable

import pytest

from memory_recall.errors import SchemaUnsupported
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.migrate import MigrationRequest, migrate
from memory_recall.schema.requirements import server_version
from memory_recall.status import inspect
from tests.integration.conftest import Database


@pytest.mark.parametrize("exists", [False, True])
async def test_a_server_that_is_too_old_is_refused_whether_or_not_there_is_a_table(
    database: Database, request_for: Callable[..., MigrationRequest], monkeypatch: pytest.MonkeyPatch, exists: bool
) -> None:
    """The migration says so, and the status, which the operator reads."""
    monkeypatch.setattr(server_version, "_OLDEST", 99)
    async with database.connection() as connection:
        if exists:
            await connection.execute("CREATE TABLE memories (id bigint PRIMARY KEY, content text)")
        relations = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace"
        before = await connection.fetchval(relations)
        with pytest.raises(SchemaUnsupported, match="Postgres 99 or later"):
            await migrate(DsnText(database.dsn), request_for())
        assert await connection.fetchval(relations) == before
        fault, *_ = (await inspect(connection, "memories")).faults
    assert "Postgres 99 or later" in fault.message
