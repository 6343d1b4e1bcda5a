"""A table of memories with a real replica, whose replay a test can stop at any moment."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg

from memory_recall.contrib.replicas import ReplicaRecall
from memory_recall.postgres.connection import DsnText, create_pool
from memory_recall.search.hybrid_recall import HybridRecall
from memory_recall.search.options import RecallOptions
from tests.support.postgres_instance import PostgresInstance

_LAG_SECONDS = 60.0


@dataclass
class Replicated:
    """The memories on the primary, and a pool of connections to the replica."""

    memories: Any
    server: PostgresInstance
    pool: "asyncpg.Pool[asyncpg.Record]"
    _superuser: "asyncpg.Connection[asyncpg.Record]"

    def recalling(self, embedder: Any = None, *, pool: Any = None, primary: Any = None) -> ReplicaRecall:
        """Make a recall that searches the replica, by another pool if one is given, and has a pool of the primary."""
        recall = ReplicaRecall(self.recalling_alone(embedder, pool=pool), primary or self.memories.pool)
        self.memories.opened.append(recall)
        return recall

    def recalling_alone(self, embedder: Any = None, *, pool: Any = None) -> HybridRecall:
        """Make a recall that searches the replica and knows no primary."""
        recall = HybridRecall(pool or self.pool, embedder, RecallOptions(time_budget=60.0))
        self.memories.opened.append(recall)
        return recall

    async def catch_up(self) -> None:
        """Wait until the replica has replayed everything that the primary has written so far."""
        async with asyncio.timeout(_LAG_SECONDS):
            written = await self.memories.pool.fetchval("SELECT pg_current_wal_insert_lsn()::text")
            while not await self._superuser.fetchval(f"SELECT pg_last_wal_replay_lsn() >= '{written}'"):  # noqa: ASYNC110  (it is the database that changes)
                await asyncio.sleep(0.01)

    @asynccontextmanager
    async def cancelling_at_once(self) -> AsyncIterator[None]:
        """Within the block the replica cancels at once whatever stands in the way of replaying."""
        setting = "ALTER SYSTEM SET max_standby_streaming_delay = {}"
        try:
            for statement in (setting.format("0"), "SELECT pg_reload_conf()"):
                await self._superuser.execute(statement)
            yield
        finally:
            for statement in (setting.format("DEFAULT"), "SELECT pg_reload_conf()"):
                await self._superuser.execute(statement)

    async def until_asleep(self) -> None:
        """Wait until a statement sleeps on the replica."""
        asleep = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep')"
        async with asyncio.timeout(_LAG_SECONDS):
            while not await self._superuser.fetchval(asleep):  # noqa: ASYNC110  (it is the database that changes)
                await asyncio.sleep(0.01)

    @asynccontextmanager
    async def lagging(self) -> AsyncIterator[None]:
        """Catch up, and replay nothing within the block."""
        await self.catch_up()
        await self._superuser.execute("SELECT pg_wal_replay_pause()")
        try:
            async with asyncio.timeout(_LAG_SECONDS):
                while await self._superuser.fetchval("SELECT pg_get_wal_replay_pause_state()") != "paused":  # noqa: ASYNC110  (it is the database that changes)
                    await asyncio.sleep(0.01)
            yield
        finally:
            await self._superuser.execute("SELECT pg_wal_replay_resume()")


@asynccontextmanager
async def open_replicated(memories: Any, database: Any, replica: PostgresInstance) -> AsyncIterator[Replicated]:
    """Open the table of memories of a database of which `replica` has a copy as well."""
    superuser = await asyncpg.connect(replica.superuser_dsn())
    try:
        async with asyncio.timeout(_LAG_SECONDS):
            created = "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)"
            while not await superuser.fetchval(created, database.name):  # noqa: ASYNC110  (it is the database that changes)
                await asyncio.sleep(0.01)
        pool = await create_pool(DsnText(replica.dsn(database.name)), min_size=2, max_size=4)
        try:
            yield Replicated(memories, replica, pool, superuser)
        finally:
            for recall in memories.opened:
                await recall.close()
            await pool.close()
    finally:
        await superuser.close()
