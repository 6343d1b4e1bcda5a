"""Library and operator of commit 5ed9431 go on working against a database at the last revision."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memory_recall.postgres.connection import DsnText
from memory_recall.schema.migrate import MigrationRequest, migrate
from memory_recall.schema.revisions import require_schema
from tests.integration.memory_recall.conftest import REPOSITORY
from tests.integration.memory_recall.workbench import Workbench

FORMER = "5ed9431"
SEEN_BY_ITS_OPERATOR = """
import asyncio, json, sys
from memory_operator.clients.database import inspect
found = asyncio.run(inspect(sys.argv[1], "memories"))
print(json.dumps([found.schema_current, found.schema_ahead, found.active_model, found.rows.embedded]))
"""


@pytest.fixture(scope="session")
def former(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That commit's own library, migrations and operator."""
    folder = tmp_path_factory.mktemp("former")
    archive = subprocess.run(
        ["git", "archive", FORMER, "recall", "migrations", "operator"], cwd=REPOSITORY, check=True, capture_output=True
    )
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder


class Former:
    """Starts programs of that commit against the bench's database."""

    def __init__(self, folder: Path, bench: Workbench) -> None:
        self._folder = folder
        self._environment = {
            **bench.environment(),
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": f"{folder / 'recall'}:{folder / 'operator'}",
        }

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, *arguments, cwd=self._folder, env=self._environment,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip

    async def run(self, *arguments: str) -> Any:
        """The JSON that it prints; the last line, should a log come before it."""
        process = await self.start(*arguments)
        output, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        return json.loads(output.decode())

    async def memory(self, *arguments: str) -> Any:
        return await self.run("-m", "memory_recall", *arguments, "--json")


async def test_programs_of_the_former_release_work_at_the_last_revision(
    bench: Workbench, former: Path, request_for: Callable[..., MigrationRequest]
) -> None:
    """Backfill, recall, status, sync and migration of 5ed9431, and its operator's view; its index build
    writes a function its own way, which the next migration of ours puts right.
    """
    old = Former(former, bench)
    await bench.insert("the router hangs in the hall", "the boiler is in the cellar")
    await bench.execute("INSERT INTO memories (content, is_sensitive) VALUES ('the PIN is 4711', true)")
    assert (await old.memory("backfill"))["embedded"] == 2
    assert await bench.problems() == []
    assert (await old.memory("index", "build"))["valid"] is True
    assert (await old.memory("migrate", "--to", "head"))["applied"] == []
    answer = await old.memory("recall", "router in the hall")
    assert (answer["mode"], answer["degraded"]) == ("hybrid", False)
    assert answer["memories"][0]["content"] == "the router hangs in the hall"
    assert (await old.memory("status"))["rows"]["embedded"] == 2
    sync = await old.start("-m", "memory_recall", "sync")
    try:
        await bench.execute("UPDATE memories SET content = 'edited' WHERE id = 1")
        await bench.insert("written while it runs")
        await bench.until_embedded(3)
    finally:
        sync.terminate()
        await sync.communicate()
    assert await bench.problems() == []
    assert await old.run("-c", SEEN_BY_ITS_OPERATOR, bench.database.dsn) == [True, False, "tiny", 3]
    await migrate(DsnText(bench.database.dsn), request_for())
    async with bench.database.connection() as connection:
        await require_schema(connection, "memories")
