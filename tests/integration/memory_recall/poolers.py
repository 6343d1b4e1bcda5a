"""A real PgBouncer in front of a test's database."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.integration.conftest import Database
from tests.support.pgbouncer import running_pgbouncer


@asynccontextmanager
async def pgbouncer(database: Database, *, mode: str) -> AsyncIterator[str]:
    """The connection string of a pooler in that mode; it ends with the block."""
    where = f"host=127.0.0.1 port={database.server.port}"
    async with running_pgbouncer({database.name: where}, mode=mode) as pooler:
        yield pooler.dsn(database.name)
