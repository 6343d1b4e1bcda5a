"""Migrations share the database with other migrators, with writers and with their own interrupted predecessors."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import asyncpg
import pytest

from memory_recall.errors import LockNotAvailable, PoolerRefused
from memory_recall.graph.switching import restore_graph
from memory_recall.hnsw.repair import IndexParameters, build_index
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.migrate import MigrationRequest, migrate, remove
from memory_recall.schema.revisions import HEAD_REVISION
from memory_recall.schema.table_locks import LOCK_TIMEOUT_MS, Work, locked_session
from memory_recall.status import inspect
from tests.integration.conftest import Database
from tests.integration.memory_recall.workbench import migrate_and_index, until

Requests = Callable[..., MigrationRequest]


async def _fill(database: Database, rows: int) -> None:
    async with database.connection() as connection:
        await connection.execute(
            "INSERT INTO memories (content, embedding) SELECT 'text ' || n, "
            "(SELECT array_agg(random()::real) FROM generate_series(1, 8) WHERE n > 0)::halfvec "
            "FROM generate_series(1, $1::int) n",
            rows,
        )


async def test_two_migrators_at_once_both_succeed_and_one_does_the_work(
    database: Database, request_for: Requests
) -> None:
    source = DsnText(database.dsn)
    results = await asyncio.gather(*(migrate_and_index(source, request_for()) for _ in range(3)))
    assert [result.revision for result in results] == [HEAD_REVISION] * 3
    assert sorted(len(result.applied) for result in results) == [0, 0, 2]


async def test_a_migration_that_cannot_take_the_lock_fails_with_a_clear_error(
    database: Database, request_for: Requests
) -> None:
    async with database.connection() as other:
        await other.execute("SELECT pg_advisory_lock($1)", 0x6D656D6F_72796978)
        with pytest.raises(LockNotAvailable, match="Another table of this database is being migrated"):
            await migrate(DsnText(database.dsn), request_for(lock_seconds=0))


async def test_an_index_build_keeps_other_work_from_its_own_table_and_other_builds_from_the_database(
    database: Database, request_for: Requests
) -> None:
    """A build may last hours, in which the guards of another table are restored all the same."""
    source = DsnText(database.dsn)
    await migrate(source, request_for())
    async with locked_session(source, "memories", 1, Work.INDEX_BUILD):
        await migrate(source, request_for(table="notes", lock_seconds=1))
        await restore_graph(source, "notes", lock_seconds=1)
        for work in (
            migrate(source, request_for(lock_seconds=0)),
            remove(source, request_for(lock_seconds=0)),
            restore_graph(source, "public.memories", lock_seconds=0),
        ):
            with pytest.raises(LockNotAvailable, match="table public"):
                await work
        with pytest.raises(LockNotAvailable, match="Another vector index"):
            await build_index(source, "notes", IndexParameters(), lock_seconds=0)
    await build_index(source, "notes", IndexParameters(), lock_seconds=1)
    await remove(source, request_for(lock_seconds=1))


async def test_an_index_left_invalid_by_an_interrupted_build_is_rebuilt(
    database: Database, request_for: Requests
) -> None:
    source = DsnText(database.dsn)
    await migrate(source, request_for())
    await _fill(database, 3000)
    builder = await asyncpg.connect(database.dsn)
    async with database.connection() as blocker:
        transaction = blocker.transaction()
        await transaction.start()
        await blocker.execute("UPDATE memories SET importance = 0.1 WHERE id = 1")
        build = asyncio.create_task(
            builder.execute(
                "CREATE INDEX CONCURRENTLY idx_memories_embedding ON memories USING hnsw (embedding halfvec_cosine_ops)"
            )
        )
        await _until(lambda: _index_exists(database))
        await blocker.execute("SELECT pg_cancel_backend($1)", builder.get_server_pid())
        with pytest.raises(asyncpg.QueryCanceledError):
            await build
        await transaction.rollback()
    await builder.close()
    async with database.connection() as connection:
        broken = (await inspect(connection, "memories")).index
        assert (broken.exists, broken.valid) == (True, False)
    assert (await migrate_and_index(source, request_for())).revision == HEAD_REVISION
    async with database.connection() as connection:
        assert (await inspect(connection, "memories")).index.valid
        await connection.execute("DROP INDEX idx_memories_embedding")
    await build_index(source, "memories", IndexParameters())
    async with database.connection() as connection:
        assert (await inspect(connection, "memories")).index.valid, "a dropped index is built again"


_IN_A_PROCESS = [sys.executable, "-m", "memory_recall"]
_INDEX_STAGE = "USING hnsw"


@pytest.mark.parametrize("stage", ["ADD COLUMN", "TRIGGER", "VALIDATE CONSTRAINT", "embedding_pending", _INDEX_STAGE])
async def test_a_migration_killed_at_any_stage_succeeds_when_run_again(
    database: Database, request_for: Requests, stage: str
) -> None:
    """Each stage is held up by an event trigger's lock, so the kill hits exactly there."""
    source = DsnText(database.dsn)
    await migrate_to_first(database, request_for)
    if stage == _INDEX_STAGE:
        await migrate(source, request_for())
    command = ["index", "build"] if stage == _INDEX_STAGE else ["migrate"]
    await _as_superuser(
        database,
        "CREATE FUNCTION hold() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN "
        f"IF current_query() LIKE '%{stage}%' THEN "
        "PERFORM set_config('lock_timeout', '0', true); PERFORM pg_advisory_xact_lock(7); END IF; END $$",
        "CREATE EVENT TRIGGER hold ON ddl_command_start EXECUTE FUNCTION hold()",
    )
    holder = await asyncpg.connect(database.superuser_dsn)
    await holder.execute("SELECT pg_advisory_lock(7)")
    settings = {"MEMORY_DATABASE_URL": database.dsn, "MEMORY_MODEL": "tiny", "MEMORY_DIMENSIONS": "8"}
    process = await asyncio.create_subprocess_exec(
        *_IN_A_PROCESS,
        *command,
        env={**os.environ, **settings},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output = asyncio.create_task(process.communicate())
    try:
        await _until(lambda: _waits_or_ended(database, stage, output))
        assert not output.done(), output.result()[0].decode()
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGKILL)
        await output
        await holder.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'memory-migrate' AND datname = current_database()"
        )
        await holder.close()
    await _as_superuser(database, "DROP EVENT TRIGGER hold", "DROP FUNCTION hold")
    result = await migrate_and_index(source, request_for())
    assert result.revision == HEAD_REVISION
    async with database.connection() as connection:
        facts = await inspect(connection, "memories")
        assert facts.index.valid
        assert await connection.fetchval("SELECT count(*) FROM pg_index WHERE NOT indisvalid") == 0


async def test_writers_are_not_blocked_while_a_migration_waits_for_its_lock(
    database: Database, request_for: Requests
) -> None:
    """A long transaction blocks the ALTER TABLE; other sessions must still be able to write."""
    source = DsnText(database.dsn)
    await migrate_to_first(database, request_for)
    async with database.connection() as reader, database.connection() as writer:
        transaction = reader.transaction()
        await transaction.start()
        await reader.fetch("SELECT * FROM memories")
        migration = asyncio.create_task(migrate(source, request_for(lock_seconds=60)))
        await _until(lambda: _someone_waits_for_a_lock(database))
        for number in range(20):  # would wait for the reader to end if the migration stayed in the lock's queue
            await writer.execute("INSERT INTO memories (content) VALUES ($1)", f"text {number}")
        assert not migration.done()
        await transaction.rollback()
        await migration
    assert LOCK_TIMEOUT_MS <= 200


async def test_a_migration_waits_for_a_vacuum_without_blocking_other_sessions(
    database: Database, request_for: Requests
) -> None:
    """It waits for the weak lock, after which Postgres ends an autovacuum, and does not lock the whole table again."""
    await migrate_to_first(database, request_for)
    turns = 0

    async def use(connection: "asyncpg.Connection[asyncpg.Record]", migration: "asyncio.Task[object]") -> None:
        """Write and read until the migration has ended; one that waits for as long as a vacuum fails."""
        nonlocal turns
        await connection.execute("SET lock_timeout = '4s'")
        while not migration.done():
            await connection.execute("INSERT INTO memories (content) VALUES ('text')")
            await connection.fetch("SELECT count(*) FROM memories")
            turns += 1

    async with database.connection() as vacuum, database.connection() as other:
        await vacuum.execute("BEGIN")
        await vacuum.execute("LOCK TABLE memories IN SHARE UPDATE EXCLUSIVE MODE")  # as VACUUM does
        migration = asyncio.create_task(migrate(DsnText(database.dsn), request_for()))
        using = asyncio.create_task(use(other, migration))
        await _until(lambda: _waits_by_the_weak_lock_or_ended(database, using))
        seen = turns
        await until(lambda: turns >= seen + 20 or using.done())
        assert not migration.done()
        await vacuum.execute("COMMIT")
        await migration
        await using


async def test_a_pooler_is_refused(database: Database, request_for: Requests) -> None:
    async with _pooler_in_front_of(database) as dsn:
        with pytest.raises(PoolerRefused, match="-rw service"):
            await migrate(DsnText(dsn), request_for())


async def migrate_to_first(database: Database, request_for: Requests) -> None:
    """A database with a table of memories and nothing else of ours."""
    async with database.connection() as connection:
        await connection.execute(
            "CREATE TABLE memories (id serial PRIMARY KEY, content text NOT NULL, importance real DEFAULT 0.5, "
            "is_sensitive boolean NOT NULL DEFAULT false, deleted_at timestamptz)"
        )


@asynccontextmanager
async def _pooler_in_front_of(database: Database) -> AsyncIterator[str]:
    """Forwards bytes as a pooler does, and like every pooler tells its client a process id of its own making."""
    tasks: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, rewrite: bool) -> None:
        rewritten = not rewrite
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while data := await reader.read(65536):
                key = data.find(b"K\x00\x00\x00")
                if not rewritten and key >= 0 and data[key + 4 : key + 5] in (b"\x0c", b"\x28"):
                    data = data[: key + 5] + (123456).to_bytes(4, "big") + data[key + 9 :]
                    rewritten = True
                writer.write(data)
                await writer.drain()
        writer.close()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_server, from_server = reader, writer
        upstream_reader, upstream_writer = await asyncio.open_connection("127.0.0.1", database.server.port)
        for task in (
            asyncio.create_task(pump(to_server, upstream_writer, rewrite=False)),
            asyncio.create_task(pump(upstream_reader, from_server, rewrite=True)),
        ):
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accepted, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield database.dsn.replace(f":{database.server.port}/", f":{port}/") + "?sslmode=disable"
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 180
    while not await condition():  # type: ignore[misc]
        assert time.monotonic() < deadline, "the awaited state never came"
        await asyncio.sleep(0.02)


async def _index_exists(database: Database) -> bool:
    async with database.connection() as connection:
        return await connection.fetchval("SELECT to_regclass('idx_memories_embedding')") is not None


async def _someone_waits_at(database: Database, stage: str) -> bool:
    async with database.connection() as connection:
        found: bool = await connection.fetchval(
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'memory-migrate' "
            "AND wait_event = 'advisory' AND query LIKE '%' || $1 || '%' AND datname = current_database())",
            stage,
        )
    return found


async def _waits_or_ended(database: Database, stage: str, output: "asyncio.Task[tuple[bytes, bytes]]") -> bool:
    return output.done() or await _someone_waits_at(database, stage)


async def _someone_waits_for_a_lock(database: Database) -> bool:
    async with database.connection() as connection:
        found: bool = await connection.fetchval(
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'memory-migrate' "
            "AND wait_event_type = 'Lock' AND datname = current_database())"
        )
    return found


async def _waits_by_the_weak_lock_or_ended(database: Database, using: "asyncio.Task[None]") -> bool:
    async with database.connection() as connection:
        found: bool = await connection.fetchval(
            "SELECT EXISTS (SELECT FROM pg_locks WHERE relation = 'memories'::regclass AND NOT granted "
            "AND mode = 'ShareUpdateExclusiveLock')"
        )
    return using.done() or found


async def _as_superuser(database: Database, *statements: str) -> None:
    connection = await asyncpg.connect(database.superuser_dsn)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()
