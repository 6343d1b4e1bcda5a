"""Recalls while the certificate by which their role logs in is renewed."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from devcluster.node.pki import Authority
from memory_recall.errors import AuthenticationFailed
from memory_recall.postgres.connection import DsnFile, DsnText, connect, create_pool
from memory_recall.postgres.tls import DatabaseTls
from memory_recall.search.hybrid_recall import HybridRecall
from memory_recall.search.options import RecallOptions
from tests.integration.conftest import Database
from tests.integration.memory_recall.certified import CA, CLIENTS, OURS, SERVER, Mounted, dsn, front, shown
from tests.integration.memory_recall.queries import make_query
from tests.integration.memory_recall.read_path.conftest import LONG_BUDGET
from tests.support.postgres_instance import CERTIFIED_ROLE


async def test_recalls_go_on_while_the_certificate_is_renewed_twice_and_the_old_authority_goes(
    memories: Any, embedder: Any, database: Database, tmp_path: Path
) -> None:
    """First the certificate is renewed, then by a new authority, then the old authority is trusted no more."""
    wanted = await memories.add("The backup job runs at night")
    new = Authority(name="new")
    both = CLIENTS.certificate.decode() + new.certificate.decode()
    mounted = Mounted(tmp_path / "secret", OURS)
    uri, renewed = tmp_path / "uri", new.client(CERTIFIED_ROLE, "")
    async with front(database) as server:
        uri.write_text(dsn(database, server))
        source = DsnFile(uri, tls=DatabaseTls(ca=CA, client=mounted.certificate))
        pool = await create_pool(source, min_size=1, max_size=4)
        recall = HybridRecall(pool, embedder, RecallOptions(time_budget=LONG_BUDGET))
        stop, answers = asyncio.Event(), asyncio.Semaphore(0)

        async def ask() -> None:
            while not stop.is_set():
                assert (await recall.recall(make_query("backup job", limit=1))).ids == [wanted]
                answers.release()
                await pool.expire_connections()  # so that each recall opens a connection

        async with asyncio.timeout(120), asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(ask())
            for change in (
                partial(mounted.write, CLIENTS.client(CERTIFIED_ROLE, "")),
                partial(server.exchange, SERVER, both),
                partial(mounted.write, renewed),
                partial(server.exchange, SERVER, new.certificate.decode()),
            ):
                change()
                for _ in range(20):
                    await answers.acquire()
            stop.set()
        await recall.close()
        await pool.close()
        with pytest.raises(AuthenticationFailed, match="does not trust"):
            await connect(DsnText(source.read(), tls=shown(OURS)))
