"""What the tests of `memory adopt` share."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from typer.testing import CliRunner, Result

from memory_recall.cli.app import create_app
from tests.integration.conftest import Database


@pytest.fixture
def adopt(database: Database, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Awaitable[Result]]:
    """Runs `memory adopt` over the test's database for the default model."""
    for name, value in {"DATABASE_URL": database.dsn, "MODEL": "all-MiniLM-L6-v2"}.items():
        monkeypatch.setenv(f"MEMORY_{name}", value)

    async def run(*arguments: str) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, create_app(["adopt"]), ["adopt", *arguments])

    return run
