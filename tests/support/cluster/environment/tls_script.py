"""Recalls without pause with a pool that verifies the database server, until standard input ends.

`tls` runs it in a pod, as `python -c`, with the variables of the `memory` command. It prints one JSON object at
its end: the numbers of recalls and errors, and whether a connection that is opened then is verified.
"""

import asyncio
import json
import os
import sys
import threading
from collections import Counter
from pathlib import Path

from memory_recall import (
    DatabaseTls,
    DsnFile,
    EmbedderClient,
    HybridRecall,
    MemoryIndexError,
    RecallOptions,
    RecallQuery,
    create_pool,
)

_CONNECTIONS = 4
_FOLLOWED_SECONDS = 150  # in which the kubelet has brought the new authority
_EMBEDDING_SECONDS, _RECALL_SECONDS = 5.0, 10.0  # no recall is refused because the machine is busy


def source() -> DsnFile:
    """Return the mounted connection string and authority."""
    return DsnFile(
        Path(os.environ["MEMORY_DATABASE_URL_FILE"]), tls=DatabaseTls(ca=Path(os.environ["MEMORY_DATABASE_CA_FILE"]))
    )


async def recall_until(ended: threading.Event, recall: HybridRecall, seen: Counter[str]) -> None:
    """Recall one after the other, at least once, and count what came of it."""
    while True:
        try:
            await recall.recall(RecallQuery("what do we keep", user_id="default", limit=5))
            seen["recalls"] += 1
        except MemoryIndexError as error:
            seen["errors"] += 1
            seen[error.reason] += 1
        if ended.is_set():
            return
        await asyncio.sleep(0.05)


async def verified_anew() -> bool:
    """Open new connections until one is verified by the authority that is mounted then."""
    async with asyncio.timeout(_FOLLOWED_SECONDS):
        while True:
            try:
                pool = await create_pool(source(), max_size=1)
            except MemoryIndexError:
                await asyncio.sleep(2)
            else:
                found = await pool.fetchval("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
                await pool.close()
                return bool(found)


def end_with_input(ended: threading.Event) -> None:
    """Wait for the end of standard input."""
    sys.stdin.read()
    ended.set()


async def main() -> None:
    """Recall on several connections at once."""
    ended, seen = threading.Event(), Counter[str]()
    threading.Thread(target=end_with_input, args=(ended,), daemon=True).start()
    pool = await create_pool(source(), min_size=_CONNECTIONS, max_size=_CONNECTIONS)
    async with EmbedderClient(os.environ["MEMORY_EMBEDDER_URL"], os.environ["MEMORY_MODEL"]) as embedder:
        recall = HybridRecall(
            pool, embedder, RecallOptions(embedding_budget=_EMBEDDING_SECONDS, time_budget=_RECALL_SECONDS)
        )
        async with asyncio.TaskGroup() as running:
            for _ in range(_CONNECTIONS):
                running.create_task(recall_until(ended, recall, seen))
        await recall.close()
    await pool.close()
    print(json.dumps({**seen, "verified_anew": await verified_anew()}))


asyncio.run(main())
