"""Recalls in all stores without pause, as the server of each would, and prints each recall as one line of JSON.

It also prints what the process itself holds, as lines with the key `samples`.

It runs inside the cluster's network. Its argument is a JSON object: for each store its table, the file with the
connection string, the embedder's URL, and whether the connection goes through a pooler. Each line of standard input is
a JSON list: the store, the user who asks, and the question. The process ends with its input.
"""

import asyncio
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from memory_recall import (
    DsnFile,
    FollowingEmbedder,
    HybridRecall,
    MemoryIndexError,
    RecallOptions,
    RecallQuery,
    create_pool,
)
from tests.soak.ledger import MARKER

_PAUSE_SECONDS = 0.2
_START_SECONDS = 3.0  # between two attempts to open the first connection
_TICK_SECONDS = 0.02
_SAMPLE_SECONDS = 10.0
_MODEL = "all-MiniLM-L6-v2"

answers = sys.stdout


def say(**line: object) -> None:
    """Print one line of JSON."""
    answers.write(json.dumps(line) + "\n")
    answers.flush()


@dataclass
class Standstill:
    """How long this process has stood still, in seconds, because the machine was busy or the loop was.

    `_counted` is the time of former pauses, and `_due` the moment at which the present one should end.
    """

    _counted: float = 0.0
    _due: float = float("inf")

    def until(self, now: float) -> float:
        """Return the seconds until `now`, a pause that is too long already included."""
        return self._counted + max(0.0, now - self._due)

    async def watch(self) -> None:
        """Count by how much each of many short pauses is too long."""
        while True:
            self._due = time.monotonic() + _TICK_SECONDS
            await asyncio.sleep(_TICK_SECONDS)
            self._counted += max(0.0, time.monotonic() - self._due)


@dataclass(frozen=True)
class Clock:
    """A moment, and how long this process had computed, waited for a processor and stood still until then."""

    now: float
    computed: float
    queued: float
    stood_still: float

    @classmethod
    def read(cls, standstill: Standstill) -> Self:
        """Read the clocks. The time for which the thread of the loop has waited for a processor is Linux's."""
        _, queued, _ = Path("/proc/self/schedstat").read_text(encoding="ascii").split()
        now = time.monotonic()
        return cls(now, time.process_time(), int(queued) / 1e9, standstill.until(now))

    def line(self, later: Self) -> dict[str, float]:
        """Return what passed until `later` as fields of a line about a recall."""
        return {
            "began": self.now,
            "ended": later.now,
            "stood_still": later.stood_still - self.stood_still,
            "computed": later.computed - self.computed,
            "queued": later.queued - self.queued,
        }


def held() -> dict[str, float]:
    """Return what this process holds now: resident memory in MiB, open files, and tasks of its loop."""
    _, resident, *_ = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return {
        "memory recalls": int(resident) * os.sysconf("SC_PAGE_SIZE") / (1 << 20),
        "files recalls": sum(1 for _ in Path("/proc/self/fd").iterdir()),
        "tasks recalls": len(asyncio.all_tasks()),
    }


async def sample() -> None:
    """Print again and again what this process holds."""
    while True:
        say(samples=held())
        await asyncio.sleep(_SAMPLE_SECONDS)


async def opened(file: Path, *, pooled: bool) -> Any:
    """Return a pool, which a server would also not get before its database answers."""
    while True:
        try:
            size = 0 if pooled else 100
            return await create_pool(DsnFile(file), min_size=0, max_size=4, statement_cache_size=size)
        except MemoryIndexError:
            await asyncio.sleep(_START_SECONDS)


async def recall_in(
    name: str, settings: dict[str, Any], questions: "asyncio.Queue[tuple[str, str]]", standstill: Standstill
) -> None:
    """Answer one question after the other, each within the default budget, and print what came of it."""
    pool = await opened(Path(settings["dsn_file"]), pooled=settings["pooled"])
    embedder = FollowingEmbedder(settings["embedder"], _MODEL)
    recall = HybridRecall(pool, embedder, RecallOptions(table=settings["table"]))
    while True:
        asker, question = await questions.get()
        line: dict[str, Any] = {"store": name, "asker": asker, "error": None, "degraded": None}
        line |= {"found": [], "owners": []}
        began = Clock.read(standstill)
        try:
            result = await recall.recall(RecallQuery(question, user_id=asker, limit=5))
            line["degraded"] = result.reason
            line["owners"] = [one.owner for one in result.memories]
            line["found"] = [
                found.decode() for one in result.memories for found in MARKER.findall(one.content.encode())
            ]
        except MemoryIndexError as error:
            line["error"] = error.reason
        say(**line, **began.line(Clock.read(standstill)))
        await asyncio.sleep(_PAUSE_SECONDS)


async def main(stores: dict[str, dict[str, Any]]) -> None:
    """Recall until standard input ends."""
    questions: dict[str, asyncio.Queue[tuple[str, str]]] = {name: asyncio.Queue(maxsize=2) for name in stores}
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    standstill = Standstill()
    async with asyncio.TaskGroup() as running:
        tasks = [
            running.create_task(recall_in(name, settings, questions[name], standstill))
            for name, settings in stores.items()
        ]
        tasks += [running.create_task(standstill.watch()), running.create_task(sample())]
        async for line in reader:
            store, asker, question = json.loads(line)
            if not questions[store].full():
                questions[store].put_nowait((asker, question))
        for task in tasks:
            task.cancel()


if __name__ == "__main__":
    sys.stdout = sys.stderr  # where a library logs that no program has configured
    asyncio.run(main(json.loads(sys.argv[1])))
