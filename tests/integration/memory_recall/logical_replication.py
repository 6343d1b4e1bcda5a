"""Replicates tables from one database to another of the same server, by Postgres's logical replication."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import asyncpg

from tests.integration.conftest import Database

_SECONDS = 60.0
_COPIED = "SELECT count(*) > 0 AND bool_and(srsubstate = 'r') FROM pg_subscription_rel"
_MARKER = "CREATE TABLE marker (number integer PRIMARY KEY)"


@dataclass
class Replication:
    """What is written in the one database arrives in the other."""

    publisher: "asyncpg.Connection[asyncpg.Record]"
    subscriber: "asyncpg.Connection[asyncpg.Record]"
    number: int = 0

    async def catch_up(self) -> None:
        """Wait until everything that has been committed so far has been applied."""
        self.number += 1
        await self.publisher.execute("INSERT INTO marker VALUES ($1)", self.number)
        arrived = f"SELECT EXISTS (SELECT FROM marker WHERE number = {self.number})"
        async with asyncio.timeout(_SECONDS):
            while not await self.subscriber.fetchval(arrived):  # noqa: ASYNC110  (it is the database that changes)
                await asyncio.sleep(0.005)


@asynccontextmanager
async def replicating(
    source: Database, target: Database, *tables: str, everything: bool = False
) -> AsyncIterator[Replication]:
    """Replicate the tables, which both databases have, for as long as the block lasts; `everything` first copies all.

    It stands for every table of the database.
    """
    publisher, subscriber = await asyncpg.connect(source.superuser_dsn), await asyncpg.connect(target.superuser_dsn)
    name, at = f"of_{target.name}", urlsplit(source.superuser_dsn)
    address = f"host={at.hostname} port={at.port} user={at.username} password={at.password} dbname={source.name}"
    await publisher.execute(_MARKER)
    await subscriber.execute(_MARKER)
    published = "ALL TABLES" if everything else f"TABLE {', '.join([*tables, 'marker'])}"
    await publisher.execute(f"CREATE PUBLICATION {name} FOR {published}")
    await publisher.execute(f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput')")
    try:
        # A subscription to the server that it is in cannot create its slot itself.
        await subscriber.execute(
            f"CREATE SUBSCRIPTION {name} CONNECTION '{address}' PUBLICATION {name}"
            f" WITH (create_slot = false, slot_name = '{name}', copy_data = {everything})"
        )
        async with asyncio.timeout(_SECONDS):
            while everything and not await subscriber.fetchval(_COPIED):  # noqa: ASYNC110  (it is the database that changes)
                await asyncio.sleep(0.01)
        yield Replication(publisher, subscriber)
    finally:
        for statement in ("DISABLE", "SET (slot_name = NONE)"):
            await subscriber.execute(f"ALTER SUBSCRIPTION {name} {statement}")
        await subscriber.execute(f"DROP SUBSCRIPTION {name}")
        await publisher.execute(
            f"SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = '{name}' AND active"
        )
        async with asyncio.timeout(_SECONDS):
            while await publisher.fetchval(f"SELECT active FROM pg_replication_slots WHERE slot_name = '{name}'"):  # noqa: ASYNC110  (as above)
                await asyncio.sleep(0.01)
        await publisher.execute(f"SELECT pg_drop_replication_slot('{name}')")
        await publisher.close()
        await subscriber.close()
