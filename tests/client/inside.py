"""The program that runs inside the cluster's network: `python -m tests.client.inside WHAT URL JSON`.

`store` stores the memories, with those in JSON, and prints ids. `converse` asks every question and prints what was
found. `unanswerable` asks prompts that no memory answers, and prints how many memories they get. `load` recalls through
the route and the tool without end, and prints one line for each request, until SIGTERM ends it. Everything that is read
or printed is JSON.
"""

import asyncio
import itertools
import signal
import sys
import time
from dataclasses import asdict, dataclass

import orjson

from tests.client import memories
from tests.client.api import ApiError, MemoryApi
from tests.client.conversation import (
    Recall,
    Stored,
    converse,
    ids,
    rows_for_unanswerable,
    sensitive_texts,
    store_all,
)

PAUSE = 0.1  # seconds between two requests of one caller; a prompt comes far less often


@dataclass(frozen=True)
class Request:
    """One recall: its begin (Unix time), its duration, and whether it was answered and found the right memory."""

    began: float
    seconds: float
    answered: bool
    semantic: bool
    sensitive_texts: int


async def ask(recall: Recall, question: str, answer: int) -> Request:
    """Recall `question`, which the memory with the id `answer` answers, and return how the request went."""
    began, clock = time.time(), time.perf_counter()
    try:
        found = await recall(question)
    except ApiError:
        return Request(began, time.perf_counter() - clock, answered=False, semantic=False, sensitive_texts=0)
    seconds = time.perf_counter() - clock
    return Request(began, seconds, answered=True, semantic=answer in ids(found), sensitive_texts=sensitive_texts(found))


async def _ask_on(recall: Recall, answers: tuple[int, ...], first: int) -> None:
    questions = itertools.cycle(zip(memories.PAIRS, answers, strict=True))
    for (_, question), answer in itertools.islice(questions, first, None):
        _print(asdict(await ask(recall, question, answer)))
        await asyncio.sleep(PAUSE)


async def _load(url: str, stored: Stored) -> None:
    """Ask by the route and by the tool at the same time, each beginning with another question."""
    api = MemoryApi(url)
    try:
        async with asyncio.TaskGroup() as callers:
            running = [
                callers.create_task(_ask_on(recall, stored.answers, first))
                for first, recall in ((0, api.recall), (7, api.recall_by_tool))
            ]
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: [one.cancel() for one in running])
    finally:
        await api.close()


def _print(value: object) -> None:
    sys.stdout.buffer.write(orjson.dumps(value) + b"\n")
    sys.stdout.buffer.flush()


async def _main(what: str, url: str, *given: str) -> None:
    if what == "store":
        _print(asdict(await store_all(url, orjson.loads(given[0]))))
        return
    if what == "unanswerable":
        _print(await rows_for_unanswerable(url, orjson.loads(given[0])))
        return
    fields = orjson.loads(given[0])
    stored = Stored(tuple(fields["answers"]), fields["superseded"], fields["successor"])
    if what == "converse":
        _print(asdict(await converse(url, stored)))
    else:
        await _load(url, stored)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
