"""Recalls in a loop until standard input ends, and prints each answer as one line of JSON.

It runs by itself, with whichever library is on PYTHONPATH: this checkout's, or that of commit 5ed9431 (argument
`former`); the settings are those of the `memory` command. The questions are the first line of standard input, a list in
JSON. Two clients ask in turn, one that lives as long as the loop and one that is made anew for every few answers: the
first keeps what it has learnt of the schema, the second sees it as it is.
"""

import asyncio
import importlib
import itertools
import json
import os
import sys
import threading
from functools import partial
from typing import Any

_PAUSE_SECONDS = 0.1  # between two recalls, so that the loop leaves the processors to what it watches
_ANSWERS_PER_CLIENT = 5
_EMBEDDING_BUDGET = 20.0  # seconds; an answer without meaning is then never due to a busy machine
_FORMER = {
    "HybridRecall": "memory_recall.recall",
    "EmbedderClient": "memory_recall.embedder",
    "create_pool": "memory_recall.store.connection",
    "Settings": "memory_recall.settings",
}


def library(which: str) -> dict[str, Any]:
    """Return what the loop uses of the library, by name."""
    if which == "former":
        former = {name: getattr(importlib.import_module(module), name) for name, module in _FORMER.items()}
        return {**former, "query": str, "budgets": {"embedding_budget": _EMBEDDING_BUDGET}}
    from memory_recall.embedding.client import EmbedderClient
    from memory_recall.postgres.connection import create_pool
    from memory_recall.search.hybrid_recall import HybridRecall
    from memory_recall.search.query import RecallQuery
    from memory_recall.search.sql.visibility import EVERYONE
    from memory_recall.settings import Settings

    return {
        "HybridRecall": HybridRecall,
        "EmbedderClient": EmbedderClient,
        "create_pool": create_pool,
        "Settings": Settings,
        "query": partial(RecallQuery, user_id=EVERYONE),
        "budgets": {"embedding_budget": _EMBEDDING_BUDGET, "time_budget": 2 * _EMBEDDING_BUDGET},
    }


async def answer(recall: Any, query: Any, client: str) -> dict[str, Any]:  # noqa: ANN401  (either library's)
    """Recall once and return what became of it."""
    try:
        result = await recall.recall(query)
    except Exception as error:  # noqa: BLE001  (whatever it is, it counts as an error)
        return {"client": client, "error": f"{type(error).__name__}: {error}", "reason": None, "found": 0}
    return {"client": client, "error": None, "reason": result.reason, "found": len(result.memories)}


def _set_at_end_of_input(stopped: threading.Event) -> None:
    sys.stdin.read()
    stopped.set()


async def main(which: str) -> None:
    """Ask until standard input ends."""
    used = library(which)
    questions = itertools.cycle(json.loads(sys.stdin.readline()))
    stopped = threading.Event()
    # A daemon, so that a failure of ours ends the process although standard input stays open.
    threading.Thread(target=_set_at_end_of_input, args=[stopped], daemon=True).start()
    settings = used["Settings"]()
    pool = await used["create_pool"](settings.dsn(), max_size=4)
    embedder = used["EmbedderClient"](os.environ["MEMORY_EMBEDDER_URL"], settings.model)

    def client() -> Any:  # noqa: ANN401  (either library's)
        return used["HybridRecall"](pool, embedder, **used["budgets"])

    lasting = client()
    while not stopped.is_set():
        fresh = client()
        for question in itertools.islice(questions, _ANSWERS_PER_CLIENT):
            for name, recall in (("lasting", lasting), ("fresh", fresh)):
                print(json.dumps(await answer(recall, used["query"](question), name)), flush=True)
                await asyncio.sleep(_PAUSE_SECONDS)
        await fresh.close()
    await lasting.close()
    await embedder.close()
    await pool.close()


asyncio.run(main(sys.argv[1]))
