"""Recalls on the primary and on replicas without pause, and marks memories as sensitive, until standard input ends.

The test runs it in a pod, as `python -c`, with the variables of the `memory` command. The first line of standard input
is a JSON object: `marked` lists the id and text of each memory that is to become sensitive, one every half second.
Every recall asks for the memory that was marked last. Each line of the output is a JSON object: a recall (`where`,
`began`, `error`, `texts`) or a mark (`id`, `at`, which is when its commit was confirmed, or null if it was not), in
seconds of one clock.
"""

import asyncio
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import asyncpg

from memory_recall import FollowingEmbedder, HybridRecall, MemoryIndexError, RecallOptions, RecallQuery
from memory_recall.contrib.replicas import ReplicaRecall

_PAUSE_SECONDS = 0.1  # between two recalls of one kind, so that the loop leaves the processors to what it watches
_MARK_SECONDS = 0.5
_BUDGETS = {"embedding_budget": 5.0, "time_budget": 10.0}  # no recall is refused because the machine is busy


class Asked:
    """The text that recalls ask for, and whether the loop is to end."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.ended = threading.Event()


def connection_string() -> str:
    return Path(os.environ["MEMORY_DATABASE_URL_FILE"]).read_text(encoding="utf-8").strip()


def say(**line: object) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


async def recall_once(recall: HybridRecall, where: str, asked: Asked) -> None:
    """Recall as the owner, to whom sensitive memories are shown without their content, and print what came of it."""
    began, error, texts = time.monotonic(), None, []
    try:
        found = (await recall.recall(RecallQuery(asked.text, user_id="default", limit=5))).memories
        texts = [(memory.id, memory.content) for memory in found]
    except MemoryIndexError as refused:
        error = refused.reason
    say(where=where, began=began, error=error, texts=texts)


async def keep_recalling(recall: HybridRecall, where: str, asked: Asked) -> None:
    while not asked.ended.is_set():
        await recall_once(recall, where, asked)
        await asyncio.sleep(_PAUSE_SECONDS)


async def keep_marking(primary: Any, marked: list[tuple[int, str]], asked: Asked) -> None:
    """Mark one memory after the other; whether a mark was stored whose commit was not confirmed is not known."""
    for identity, text in marked:
        if asked.ended.is_set():
            return
        confirmed: float | None = None
        try:
            await primary.execute("UPDATE memories SET is_sensitive = true WHERE id = $1", identity, timeout=5)
            confirmed = time.monotonic()
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            sys.stderr.write(f"marking memory {identity}: {type(error).__name__}\n")
        say(id=identity, at=confirmed)
        asked.text = text
        await asyncio.sleep(_MARK_SECONDS)


async def main() -> None:
    """Recall with a pool of the primary, with one of replicas beside it, and once with one of replicas alone."""
    marked = json.loads(sys.stdin.readline())["marked"]
    asked = Asked(marked[0][1])
    # A daemon, so that a failure of ours ends the process although standard input stays open.
    threading.Thread(target=lambda: (sys.stdin.read(), asked.ended.set()), daemon=True).start()
    dsn = connection_string()
    embedder = FollowingEmbedder(os.environ["MEMORY_EMBEDDER_URL"], os.environ["MEMORY_MODEL"])
    async with (
        asyncpg.create_pool(dsn, min_size=0, max_size=8) as primary,
        asyncpg.create_pool(dsn.replace("-rw.", "-ro."), min_size=0, max_size=8) as replicas,
    ):
        recalls = {
            "primary": HybridRecall(primary, embedder, RecallOptions(**_BUDGETS)),
            "replicas": ReplicaRecall(HybridRecall(replicas, embedder, RecallOptions(**_BUDGETS)), primary),
            "replicas alone": HybridRecall(replicas, embedder, RecallOptions(**_BUDGETS)),
        }
        await recall_once(recalls["replicas alone"], "replicas alone", asked)
        async with asyncio.TaskGroup() as running:
            running.create_task(keep_marking(primary, marked, asked))
            for where in ("primary", "replicas"):
                running.create_task(keep_recalling(recalls[where], where, asked))
        primary.terminate()  # a connection that a dead server left is not waited for
        replicas.terminate()
        for recall in recalls.values():
            await recall.close()
    await embedder.close()


asyncio.run(main())
