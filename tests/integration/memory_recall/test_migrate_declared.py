"""What the migrations make is what `migrations/schema.sql` declares, so a reviewer sees every change of the result."""

import asyncio
import os
import re
from collections.abc import Callable

from memory_recall.postgres.connection import DsnText
from memory_recall.schema.migrate import MigrationRequest
from tests.integration.conftest import Database
from tests.integration.memory_recall.conftest import REPOSITORY
from tests.integration.memory_recall.workbench import migrate_and_index

DECLARED = REPOSITORY / "migrations" / "schema.sql"
HEADER = "-- The schema at the last revision, for a model of 384 dimensions. Written by the test that compares it:\n"
HEADER += "-- MEMORY_TEST_UPDATE=1 pytest tests/integration/memory_recall/test_migrate_declared.py\n\n"
_NOISE = re.compile(r"^(--.*|SET .*|SELECT pg_catalog.set_config.*|\\(un)?restrict .*|CREATE EXTENSION .*|COMMENT .*)$")


async def dump_schema(database: Database) -> str:
    """Return the schema of a database as SQL, without what differs between servers, and without the random key."""
    process = await asyncio.create_subprocess_exec(
        str(database.server.program("pg_dump")), "--schema-only", "--no-owner", "--no-privileges",
        database.superuser_dsn, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, _ = await process.communicate()
    assert process.returncode == 0
    lines = [line for line in output.decode().splitlines() if not _NOISE.match(line)]
    without_key = re.sub(r"[0-9a-f]{64}", "(64 digits of a random key)", "\n".join(lines))
    return re.sub(r"\n{2,}", "\n\n", without_key).strip() + "\n"


async def test_the_migrated_schema_is_the_declared_one(
    database: Database, request_for: Callable[..., MigrationRequest]
) -> None:
    await migrate_and_index(DsnText(database.dsn), request_for(dimensions=384, model="all-MiniLM-L6-v2"))
    found = HEADER + await dump_schema(database)
    if os.environ.get("MEMORY_TEST_UPDATE"):
        DECLARED.write_text(found)
    assert found == DECLARED.read_text()
