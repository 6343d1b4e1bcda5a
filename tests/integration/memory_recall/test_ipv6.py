"""Database and embedder are reached by an address of IPv6 alone, over real sockets."""

from collections.abc import Callable
from dataclasses import replace

import asyncpg

from memory_operator.clients.database import DatabaseClient
from memory_recall.postgres.connection import DsnText, opened
from memory_recall.schema.migrate import MigrationRequest, migrate
from memory_recall.status import DatabaseFacts
from tests.integration.conftest import Database
from tests.integration.memory_recall.fake_embedder import FakeEmbedder
from tests.integration.memory_recall.workbench import DIMENSIONS, Workbench
from tests.unit.memory_operator.conftest import anywhere


class Ipv6Embedder(FakeEmbedder):
    """Listens on an address of IPv6 alone."""

    host = "::1"


async def test_a_backfill_needs_no_address_of_ipv4(
    own_database: Database, request_for: Callable[..., MigrationRequest]
) -> None:
    """And the operator observes the database there."""
    admin = await asyncpg.connect(own_database.superuser_dsn)
    await admin.execute("ALTER SYSTEM SET listen_addresses = '127.0.0.1,::1'")
    await admin.close()
    own_database.server.restart("fast")
    database = replace(own_database, dsn=own_database.dsn.replace("@127.0.0.1:", "@[::1]:"))
    await migrate(DsnText(database.dsn), request_for())
    async with Ipv6Embedder(dimensions=DIMENSIONS) as embedder:
        bench = Workbench(database, embedder)
        await bench.insert("one", "two")
        assert (await bench.backfill()).tally.embedded == 2
    async with opened(DsnText(database.dsn), "test") as connection:
        assert str(await connection.fetchval("SELECT inet_server_addr()")) == "::1"
    found = (await DatabaseClient(anywhere).inspect(DsnText(database.dsn), "memories", "team")).found
    assert isinstance(found, DatabaseFacts), found
    assert (found.rows.embedded, found.server_address) == (2, "::1")
