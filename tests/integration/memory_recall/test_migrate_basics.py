"""Migrations end where they should from an empty database."""

from collections.abc import Callable

from memory_recall.store.connection import DsnText
from memory_recall.store.migrate import MigrationRequest, migrate
from tests.integration.conftest import Database


async def test_an_empty_database_reaches_head(database: Database, request_for: Callable[..., MigrationRequest]) -> None:
    result = await migrate(DsnText(database.dsn), request_for(), to="head")
    assert result.revision == "0003"
    assert result.applied == ["0001", "0002", "0003"]
    again = await migrate(DsnText(database.dsn), request_for(), to="head")
    assert again.applied == []
