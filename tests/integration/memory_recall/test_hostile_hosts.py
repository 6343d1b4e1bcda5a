"""A full disk and clocks that jump cost time, never a row."""

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from memory_recall.indexing.queue_sql import PendingQueue, WorkerShare
from memory_recall.schema.models_sql import active_model
from memory_recall.schema.revisions import require_schema
from tests.integration.memory_recall.workbench import EmbeddedAgain, Workbench
from tests.support.postgres_instance import SYSTEM_USER

MIB = 1024 * 1024


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 24 MiB."""
    if os.geteuid() != 0:
        pytest.fail("a file system that can be filled needs root to be mounted: run this test as root")
    directory = Path(tempfile.mkdtemp(prefix="memory-index-disk-"))
    directory.chmod(0o755)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m,mode=0700", "tmpfs", str(directory)], check=True)
    try:
        shutil.chown(directory, SYSTEM_USER)
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)
        directory.rmdir()


async def test_a_full_disk_is_waited_for_and_nothing_finished_is_embedded_again(
    own_bench: Workbench, small_disk: Path, embedded_again: EmbeddedAgain
) -> None:
    """Vectors do not fit until somebody makes room, as when a volume is enlarged."""
    bench = own_bench
    admin = await asyncpg.connect(bench.database.superuser_dsn)
    await admin.execute(f"CREATE TABLESPACE small LOCATION '{small_disk}'")
    await bench.insert(*(f"text {number} {'x' * 500}" for number in range(2000)))
    await admin.execute("ALTER TABLE memories SET TABLESPACE small")
    ballast = small_disk / "ballast"
    free = shutil.disk_usage(small_disk).free
    with ballast.open("wb") as file:
        file.write(b"\0" * (free - 300_000))
    task = asyncio.create_task(bench.backfill())
    async with asyncio.timeout(60):
        while "database" not in bench.ear.outages:  # noqa: ASYNC110  (the worker says it)
            await asyncio.sleep(0.02)
    assert not task.done()
    finished = {row["content"] for row in await admin.fetch("SELECT content FROM memories WHERE embedding IS NOT NULL")}
    assert len(finished) < 2000
    sent = bench.embedder.received.copy()
    ballast.unlink()
    result = await task
    assert result.tally.embedded == 2000
    assert await bench.problems() == []
    assert embedded_again(bench, finished, sent) == 0
    await admin.execute("ALTER TABLE memories SET TABLESPACE pg_default")
    await admin.execute("DROP TABLESPACE small")
    await admin.close()


@pytest.mark.parametrize("jump", ["1 day", "-1 day"])
async def test_a_clock_that_jumps_neither_loses_a_delayed_row_nor_quarantines_it(bench: Workbench, jump: str) -> None:
    """A delay is kept as a time of the database; a jump of its clock shifts every one of them the other way."""
    await bench.insert("shaky", *(f"text {number}" for number in range(20)))
    alone = iter([True])

    def behaviour(texts: list[str]) -> tuple[int, dict[str, str], bytes] | None:
        """Answer nonsense once when the row is alone, which is when its failure is recorded."""
        refuse = "shaky" in texts and (len(texts) > 1 or next(alone, False))
        return (200, {}, b"{}") if refuse else None

    bench.embedder.behaviour = behaviour
    await bench.execute(
        "CREATE FUNCTION jump() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN NEW.next_attempt := NEW.next_attempt + interval '{jump}'; RETURN NEW; END $$; "
        "CREATE TRIGGER jump BEFORE INSERT ON memory_embedding_failures FOR EACH ROW EXECUTE FUNCTION jump()"
    )
    async with asyncio.timeout(60):
        result = await bench.backfill()
    assert result.tally.quarantined == 0
    assert await bench.problems() == []


async def test_a_row_whose_delay_has_just_ended_is_due_now(bench: Workbench) -> None:
    """The pass finds it delayed; when the worker reads the remaining delay, it is 0 seconds rather than none."""
    await bench.insert("shaky")
    await bench.execute(
        "INSERT INTO memory_embedding_failures (id, text_hash, attempts, error_class, next_attempt) "
        "SELECT id, memory_index_text_hash(content), 1, 'EmbedderRejected', now() - interval '1 ms' FROM memories"
    )
    async with bench.database.connection() as connection:
        table = await require_schema(connection, "memories")
        queue = PendingQueue(table, (await active_model(connection, table)).id)
        assert (await queue.state(connection, WorkerShare())).seconds_until_due == 0
        await connection.execute("UPDATE memory_embedding_failures SET next_attempt = 'infinity'")
        assert (await queue.state(connection, WorkerShare())).seconds_until_due is None
