"""What the tests of `memory adopt` share."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from typer.testing import Result

from tests.integration.conftest import Database
from tests.support.invoked_command import invoke_memory


@pytest.fixture
def adopt(database: Database, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Awaitable[Result]]:
    """Runs `memory adopt` over the test's database for the default model."""
    for name, value in {"DATABASE_URL": database.dsn, "MODEL": "all-MiniLM-L6-v2"}.items():
        monkeypatch.setenv(f"MEMORY_{name}", value)

    async def run(*arguments: str) -> Result:
        return await asyncio.to_thread(invoke_memory, ["adopt", *arguments])

    return run
