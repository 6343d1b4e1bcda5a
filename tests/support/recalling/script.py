"""Recalls in a loop until standard input ends, and prints each answer as one line of JSON.

Database, embedder and model come from the environment variables of the `memory` command. The first line of standard
input is a JSON list of questions.

Two clients recall alternately. The long-lived client lasts as long as the loop and keeps what it has read of the
schema. The fresh client is replaced after every few answers, so that it reads the schema anew.
"""

import asyncio
import itertools
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import asyncpg

from memory_recall import EVERYONE, FollowingEmbedder, HybridRecall, RecallOptions, RecallQuery

_PAUSE_SECONDS = 0.1  # between two recalls, so that the loop leaves the processors to what it watches
_ANSWERS_PER_CLIENT = 5
_EMBEDDING_BUDGET = 20.0  # seconds; a degraded answer is then never due to a busy machine


def connection_string() -> str:
    """Return the database's connection string from MEMORY_DATABASE_URL_FILE, or else from MEMORY_DATABASE_URL."""
    file = os.environ.get("MEMORY_DATABASE_URL_FILE")
    return Path(file).read_text(encoding="utf-8").strip() if file else os.environ["MEMORY_DATABASE_URL"]


def _embedder(url: str, model: str) -> FollowingEmbedder:
    authorities = os.environ.get("MEMORY_EMBEDDER_CA_FILE")
    if not authorities:
        return FollowingEmbedder(url, model)  # former versions of the library know no other arguments
    return FollowingEmbedder(url, model, ca_file=Path(authorities))


async def answer(recall: HybridRecall, query: RecallQuery, client: str) -> dict[str, Any]:
    """Recall once and return the answer: client, error, reason of degradation, and number of memories."""
    try:
        result = await recall.recall(query)
    except Exception as error:  # noqa: BLE001  (whatever it is, it counts as an error)
        return {"client": client, "error": f"{type(error).__name__}: {error}", "reason": None, "found": 0}
    return {"client": client, "error": None, "reason": result.reason, "found": len(result.memories)}


def _set_at_end_of_input(stopped: threading.Event) -> None:
    sys.stdin.read()
    stopped.set()


async def main() -> None:
    """Recall with both clients until standard input ends."""
    answers, sys.stdout = sys.stdout, sys.stderr  # where a library that no program has configured logs to
    questions = itertools.cycle(json.loads(sys.stdin.readline()))
    stopped = threading.Event()
    # A daemon, so that a failure of ours ends the process although standard input stays open.
    threading.Thread(target=_set_at_end_of_input, args=[stopped], daemon=True).start()
    pool = await asyncpg.create_pool(connection_string(), min_size=1, max_size=4)
    embedder = _embedder(os.environ["MEMORY_EMBEDDER_URL"], os.environ["MEMORY_MODEL"])

    def client() -> HybridRecall:
        options = RecallOptions(embedding_budget=_EMBEDDING_BUDGET, time_budget=2 * _EMBEDDING_BUDGET)
        return HybridRecall(pool, embedder, options)

    long_lived = client()
    while not stopped.is_set():
        fresh = client()
        for question in itertools.islice(questions, _ANSWERS_PER_CLIENT):
            for name, recall in (("long-lived", long_lived), ("fresh", fresh)):
                query = RecallQuery(question, user_id=EVERYONE)
                print(json.dumps(await answer(recall, query, name)), file=answers, flush=True)
                await asyncio.sleep(_PAUSE_SECONDS)
        await fresh.close()
    await long_lived.close()
    await embedder.close()
    await pool.close()


asyncio.run(main())
