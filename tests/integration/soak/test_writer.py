"""What the users of an hour of faults have sent before is not executed after what they send next."""

import asyncio
import random
from pathlib import Path

from tests.integration.conftest import Database
from tests.soak.ledger import Ledger, State
from tests.soak.stores import PLAIN
from tests.soak.users import Writer


async def test_a_writer_that_connects_anew_ends_the_session_that_it_has_left(
    database: Database, tmp_path: Path
) -> None:
    """The session waits for a lock, so it does not notice by itself that its client is gone."""
    dsn = tmp_path / "dsn"
    dsn.write_text(database.dsn)
    writer = Writer(PLAIN, 0, dsn, Ledger(), random.Random(1))  # noqa: S311 - a fixed seed is wanted
    row, first = writer._new()
    async with database.connection() as owner:
        await owner.execute(PLAIN.create)
    await writer._write([(row, first)])
    async with database.connection() as holder:
        lock = holder.transaction()
        await lock.start()
        await holder.execute("SELECT FROM memories FOR UPDATE")
        left = writer._connection
        waiting = asyncio.create_task(left.executemany(PLAIN.upsert, [(row, "ada", "late", False, False)]))
        blocked = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'users' AND wait_event_type = 'Lock'"
        while not await holder.fetchval(blocked):  # noqa: ASYNC110 - Postgres has no event
            await asyncio.sleep(0.01)
        left.terminate()
        await asyncio.gather(waiting, return_exceptions=True)
        writer._connection = None
        await writer._connect()
        assert await holder.fetchval(blocked) == 0
        await lock.commit()
    await writer._write([(row, State("zq00000000000002", "ada", sensitive=False, deleted=False, began=0.0))])
    async with database.connection() as reader:
        assert (await reader.fetchval("SELECT content FROM memories")).startswith("zq00000000000002")
    writer._connection.terminate()
