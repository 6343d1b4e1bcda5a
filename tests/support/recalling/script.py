"""Recalls in a loop until standard input ends, and prints each answer as one line of JSON.

The script runs with the library that is on PYTHONPATH: that of this checkout, or that of commit 5ed9431 (argument
`former`), whose package exports no names at its top level. Database, embedder and model come from the environment
variables of the `memory` command. The first line of standard input is a JSON list of questions.

Two clients recall alternately. The long-lived client lasts as long as the loop and keeps what it has read of the
schema. The fresh client is replaced after every few answers, so that it reads the schema anew.
"""

import asyncio
import importlib
import itertools
import json
import os
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg

_PAUSE_SECONDS = 0.1  # between two recalls, so that the loop leaves the processors to what it watches
_ANSWERS_PER_CLIENT = 5
_EMBEDDING_BUDGET = 20.0  # seconds; a degraded answer is then never due to a busy machine


def library(which: str) -> tuple[Any, Any, Any, dict[str, float]]:
    """Return what the loop uses of the recall library `which`.

    Returns the recall class, the class of its embedder client, a function that makes a query of a text, and the time
    budgets as keyword arguments of the recall class.
    """
    if which == "former":
        recall = importlib.import_module("memory_recall.recall").HybridRecall
        embedder = importlib.import_module("memory_recall.embedder").EmbedderClient
        return recall, embedder, str, {"embedding_budget": _EMBEDDING_BUDGET}
    from memory_recall import EVERYONE, FollowingEmbedder, HybridRecall, RecallQuery

    query = partial(RecallQuery, user_id=EVERYONE)
    budgets = {"embedding_budget": _EMBEDDING_BUDGET, "time_budget": 2 * _EMBEDDING_BUDGET}
    return HybridRecall, FollowingEmbedder, query, budgets


def connection_string() -> str:
    """Return the database's connection string from MEMORY_DATABASE_URL_FILE, or else from MEMORY_DATABASE_URL."""
    file = os.environ.get("MEMORY_DATABASE_URL_FILE")
    return Path(file).read_text(encoding="utf-8").strip() if file else os.environ["MEMORY_DATABASE_URL"]


async def answer(recall: Any, query: Any, client: str) -> dict[str, Any]:
    """Recall once and return the answer: client, error, reason of degradation, and number of memories."""
    try:
        result = await recall.recall(query)
    except Exception as error:  # noqa: BLE001  (whatever it is, it counts as an error)
        return {"client": client, "error": f"{type(error).__name__}: {error}", "reason": None, "found": 0}
    return {"client": client, "error": None, "reason": result.reason, "found": len(result.memories)}


def _set_at_end_of_input(stopped: threading.Event) -> None:
    sys.stdin.read()
    stopped.set()


async def main(which: str) -> None:
    """Recall with both clients until standard input ends; `which` is "former" or "present"."""
    answers, sys.stdout = sys.stdout, sys.stderr  # where a library that no program has configured logs to
    hybrid_recall, embedder_client, query, budgets = library(which)
    questions = itertools.cycle(json.loads(sys.stdin.readline()))
    stopped = threading.Event()
    # A daemon, so that a failure of ours ends the process although standard input stays open.
    threading.Thread(target=_set_at_end_of_input, args=[stopped], daemon=True).start()
    pool = await asyncpg.create_pool(connection_string(), min_size=1, max_size=4)
    embedder = embedder_client(os.environ["MEMORY_EMBEDDER_URL"], os.environ["MEMORY_MODEL"])

    def client() -> Any:
        return hybrid_recall(pool, embedder, **budgets)

    long_lived = client()
    while not stopped.is_set():
        fresh = client()
        for question in itertools.islice(questions, _ANSWERS_PER_CLIENT):
            for name, recall in (("long-lived", long_lived), ("fresh", fresh)):
                print(json.dumps(await answer(recall, query(question), name)), file=answers, flush=True)
                await asyncio.sleep(_PAUSE_SECONDS)
        await fresh.close()
    await long_lived.close()
    await embedder.close()
    await pool.close()


asyncio.run(main(sys.argv[1]))
