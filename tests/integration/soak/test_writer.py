"""What a user of an hour of faults writes is in the table as the ledger has it, and nothing comes late after it."""

import asyncio
import random
import time
from pathlib import Path

import pytest

from tests.integration.conftest import Database
from tests.soak import users
from tests.soak.ledger import Ledger, Read, State, lost_writes
from tests.soak.stores import PARTED, PLAIN, STORES, Store
from tests.soak.users import OPERATIONS, Writer


@pytest.mark.parametrize("store", [PLAIN, PARTED], ids=lambda store: store.name)
async def test_a_writer_that_connects_anew_ends_the_session_that_it_has_left(
    database: Database, tmp_path: Path, store: Store
) -> None:
    """The session waits for a lock, so it does not notice by itself that its client is gone."""
    dsn = tmp_path / "dsn"
    dsn.write_text(database.dsn)
    writer = Writer(store, 0, dsn, Ledger(), random.Random(1))  # noqa: S311 - a fixed seed is wanted
    row, first = writer._new()
    async with database.connection() as owner:
        await owner.execute(store.create)
    await writer._write([(row, first)])
    async with database.connection() as holder:
        lock = holder.transaction()
        await lock.start()
        await holder.execute("SELECT FROM memories FOR UPDATE")
        left = writer._connection
        waiting = asyncio.create_task(left.executemany(store.upsert, [(row, first.owner, "late", False, False)]))
        blocked = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'users' AND wait_event_type = 'Lock'"
        async with asyncio.timeout(20):
            while not await holder.fetchval(blocked):  # noqa: ASYNC110 - Postgres has no event
                await asyncio.sleep(0.01)
        left.terminate()
        await asyncio.gather(waiting, return_exceptions=True)
        writer._connection = None
        await writer._connect()
        assert await holder.fetchval(blocked) == 0
        await lock.commit()
    await writer._write([(row, State("zq00000000000002", first.owner, sensitive=False, deleted=False, began=0.0))])
    async with database.connection() as reader:
        assert (await reader.fetchval("SELECT content FROM memories")).startswith("zq00000000000002")
    writer._connection.terminate()


async def test_a_writer_writes_nothing_before_the_session_that_it_has_left_has_ended(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn = tmp_path / "dsn"
    dsn.write_text(database.dsn)
    writer = Writer(PLAIN, 0, dsn, Ledger(), random.Random(1))  # noqa: S311 - a fixed seed is wanted
    await writer._connect()
    left, session = writer._connection, writer._session
    monkeypatch.setattr(users, "_END_SESSION", users._END_SESSION.replace("pg_terminate_backend(pid, 5000)", "false"))
    with pytest.raises(TimeoutError):
        await writer._connect()
    assert writer._session == session
    monkeypatch.undo()
    writer._connection.terminate()
    await writer._connect()
    assert writer._session != session
    for connection in (left, writer._connection):
        connection.terminate()


@pytest.mark.parametrize("store", STORES, ids=lambda store: store.name)
async def test_after_every_operation_a_table_is_in_the_state_that_the_ledger_has(
    database: Database, tmp_path: Path, store: Store
) -> None:
    """So is a partitioned one, in which a row that is handed over moves to another partition."""
    dsn, ledger = tmp_path / "dsn", Ledger()
    dsn.write_text(database.dsn)
    writer = Writer(store, 0, dsn, ledger, random.Random(1))  # noqa: S311 - a fixed seed is wanted
    async with database.connection() as reader:
        await reader.execute(store.create)
        await reader.execute(f'ALTER TABLE {store.relation} ADD "{store.vector}" text')
        for operation in ["import"] * 3 + [*OPERATIONS] * 4:
            states = writer._next(operation)
            assert states, operation
            await writer._write(states)
            began = time.monotonic()
            reads = [Read(*row) for row in await reader.fetch(store.everything)]
            assert list(lost_writes(ledger, reads, began, time.monotonic())) == [], operation
            assert len(reads) == sum(not states[-1].removed for states in ledger.rows.values())
    writer._connection.terminate()
