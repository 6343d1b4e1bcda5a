"""Runs a flood against a server while clients hold connections open, and measures health probes and queries."""

import asyncio
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from memory_bench.embedder_flood.holding import Held
from memory_bench.embedder_flood.many_callers import ManyCallers, ask_at_once
from memory_bench.embedder_flood.poisoning import Poisoned, poison
from memory_bench.embedder_flood.probing import Waits, probe_health, send_queries
from memory_bench.embedder_flood.sending import Sent, attack
from memory_bench.servers import Server

_LONGEST_HEALTH_MS = 250.0
_LONGEST_QUERY_MS = 1000.0
_MOST_RSS_MB = 1500.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a flood.

    `peak_bytes` is the server's largest resident memory; `alive` says whether its process still runs.
    """

    sent: Sent
    health: Waits
    queries: Waits
    held: Held
    poisoned: Poisoned
    many_callers: ManyCallers
    peak_bytes: int
    alive: bool
    seconds: float

    def line(self) -> dict[str, object]:
        """Return the main figures, which the command prints as one line of JSON."""
        return {
            "requests": sum(self.sent.statuses.values()),
            "crashes": int(not self.alive),
            "unanswered": self.sent.statuses.get(0, 0) + self.health.failures + self.queries.failures,
            "longest_healthz_ms": self.health.longest_ms,
            "longest_query_ms_of_others": self.queries.longest_ms,
            "rss_mb": round(self.peak_bytes / 1e6),
            "innocent_failures": self.poisoned.innocent_failures,
            "callers": self.many_callers.callers,
            "resets": self.many_callers.resets,
            "half_open_survived": self.alive and self.held.all_ended and not self.health.failures,
        }

    def details(self) -> dict[str, object]:
        """Return the full counts of all that was sent and held, and the duration."""
        return {
            "sent": asdict(self.sent) | {"server_errors": self.server_errors},
            "health": asdict(self.health),
            "queries": asdict(self.queries),
            "held": asdict(self.held),
            "poisoned": asdict(self.poisoned),
            "many_callers": asdict(self.many_callers),
            "seconds": self.seconds,
        }

    @property
    def server_errors(self) -> int:
        """The number of responses with a 5xx status other than 503."""
        return sum(number for status, number in self.sent.statuses.items() if status >= 500 and status != 503)

    @property
    def passed(self) -> bool:
        """Whether the server met every requirement of the benchmark.

        The server must answer every request without a server error, answer health probes and queries fast enough, close
        every stalled connection in time, refuse the poisoned texts and no others, answer each of the callers that come
        at once, stay alive, and stay within its memory limit.
        """
        return (
            self.alive
            and self.line()["unanswered"] == self.server_errors == 0
            and self.poisoned.innocent_failures == self.poisoned.poisoned_otherwise == 0
            and self.many_callers.resets == self.many_callers.refused_otherwise == 0
            and self.held.all_ended
            and self.health.longest_ms <= _LONGEST_HEALTH_MS
            and self.queries.longest_ms <= _LONGEST_QUERY_MS
            and self.peak_bytes <= _MOST_RSS_MB * 1e6
        )


async def flood(server: Server, count: int, openapi: dict[str, Any], share: float, callers: int) -> Outcome:
    """Run the flood in another process, meanwhile measure how long other callers wait, and return the outcome.

    The other process sends `count` requests. It also holds connections open, with the fraction `share` of the clients.
    Afterwards a tenth of `count` requests are sent, of which one in ten has a text without a finite vector. At last
    `callers` ask at the same time.
    """
    loop = asyncio.get_running_loop()
    started = loop.time()
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as attacker:
        attacking = loop.run_in_executor(attacker, attack, server, count, openapi, 2, share)

        def attacked() -> bool:
            return not attacking.done()

        health, queries = await asyncio.gather(
            probe_health(server.probe_url, attacked), send_queries(server.url, attacked)
        )
        sent, held = await attacking
    poisoned = await poison(server.url, count // 10)
    many_callers = await ask_at_once(server.url, callers)
    return Outcome(
        sent=sent,
        health=health,
        queries=queries,
        held=held,
        poisoned=poisoned,
        many_callers=many_callers,
        peak_bytes=_peak_bytes(server.pid),
        alive=_alive(server.pid),
        seconds=round(loop.time() - started, 1),
    )


def _peak_bytes(pid: int) -> int:
    """Return the largest resident memory in bytes that a process has had, or 0 if the process has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    return 0


def _alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
