"""The sync worker says that it is ready only while a row that is written now would get its vector."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection

import pytest

from memory_recall.errors import ModelMismatch
from memory_recall.indexing.readiness import Readiness
from tests.integration.memory_recall.test_sync_worker import NEVER, running
from tests.integration.memory_recall.workbench import Workbench, until
from tests.support.ports import reserved_ports


def status(port: int, path: str) -> int | None:
    """Return the status with which the port answers; None if nobody listens there yet."""
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except ConnectionRefusedError:
        return None
    finally:
        connection.close()


async def test_a_sync_process_that_waits_for_its_embedder_is_scraped_and_not_ready(bench: Workbench) -> None:
    with reserved_ports(1) as (port,):
        await bench.embedder.stop()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "memory_recall", "sync", "--json",
            env={**os.environ, **bench.environment(MEMORY_METRICS_PORT=str(port))}, stdout=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            await until(lambda: status(port, "/metrics"))
            assert (status(port, "/metrics"), status(port, "/readyz")) == (200, 503)
            await bench.embedder.start()
            await until(lambda: status(port, "/readyz") == 200)
        finally:
            process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(process.wait(), 60)


async def test_a_sync_worker_is_not_ready_while_it_waits_for_its_embedder_again(bench: Workbench) -> None:
    readiness = Readiness()
    async with running(bench, poll_seconds=NEVER, readiness=readiness):
        await until(readiness.is_ready)
        await bench.embedder.stop()
        await bench.insert("written while the embedder is away")
        await until(lambda: not readiness.is_ready())
        await bench.embedder.start()
        await until(readiness.is_ready)
        await bench.until_embedded(1)
    assert not readiness.is_ready()


async def test_a_sync_worker_is_not_ready_while_it_waits_for_the_database_again(bench: Workbench) -> None:
    readiness = Readiness()
    async with running(bench, poll_seconds=0.05, readiness=readiness):
        await until(readiness.is_ready)
        async with bench.database.connection() as connection, connection.transaction():
            await connection.execute("LOCK TABLE memories")
            await until(lambda: not readiness.is_ready())
        await until(readiness.is_ready)


async def test_a_sync_worker_whose_embedder_serves_another_model_is_never_ready(bench: Workbench) -> None:
    class Noted(Readiness):
        was_prepared = False

        @contextmanager
        def prepared(self) -> Iterator[None]:
            self.was_prepared = True
            yield

    readiness = Noted()
    bench.embedder.model = "another"
    with pytest.raises(ModelMismatch):
        async with running(bench, poll_seconds=NEVER, readiness=readiness) as task:
            await task
    assert not readiness.was_prepared
