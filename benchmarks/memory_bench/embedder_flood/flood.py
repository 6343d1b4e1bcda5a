"""Sends the requests of the flood and measures the memory of the server process before and after."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import httpx
import psutil

from memory_bench.embedder_flood.bodies import Request

_CONCURRENT = 16
_ALLOWED_GROWTH = 0.05


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a flood; `rss_before` and `rss_after` are the resident memory in bytes."""

    requests: int
    malformed: int
    statuses: dict[str, int]
    malformed_accepted: int
    server_errors: int
    unanswered: int
    rss_before: int
    rss_after: int
    seconds: float

    @property
    def rss_change(self) -> float:
        """The growth of resident memory as a share: 0.02 is two per cent more."""
        return self.rss_after / self.rss_before - 1

    @property
    def passed(self) -> bool:
        """Whether every request was answered, none with a 5xx status except 503, and memory changed by at most 5 %."""
        return not self.server_errors and not self.unanswered and abs(self.rss_change) <= _ALLOWED_GROWTH

    def as_dict(self) -> dict[str, object]:
        """Return all fields, the growth of memory and whether the flood passed, as a dictionary for JSON."""
        return asdict(self) | {"rss_change": round(self.rss_change, 4), "passed": self.passed}


async def flood(url: str, pid: int, warm_up: Sequence[Request], measured: Sequence[Request]) -> Outcome:
    """Send the warm-up, which fills pools and caches, then the measured requests, and compare the memory after each."""
    process = psutil.Process(pid)
    await _send(url, warm_up)
    before = process.memory_info().rss
    started = time.monotonic()
    statuses, accepted = await _send(url, measured)
    return Outcome(
        requests=len(measured),
        malformed=sum(request.malformed for request in measured),
        statuses={str(status): number for status, number in sorted(statuses.items())},
        malformed_accepted=accepted,
        server_errors=sum(number for status, number in statuses.items() if status >= 500 and status != 503),
        unanswered=statuses[0],
        rss_before=before,
        rss_after=_resident(process),
        seconds=round(time.monotonic() - started, 1),
    )


async def _send(url: str, requests: Sequence[Request]) -> tuple[Counter[int], int]:
    waiting = iter(requests)
    statuses: Counter[int] = Counter()
    async with httpx.AsyncClient(base_url=url, timeout=120) as client:
        accepted = await asyncio.gather(*(_work(client, waiting, statuses) for _ in range(_CONCURRENT)))
    return statuses, sum(accepted)


async def _work(client: httpx.AsyncClient, waiting: Iterator[Request], statuses: Counter[int]) -> int:
    accepted = 0
    for request in waiting:
        try:
            answer = await client.post(
                "/v1/embeddings", content=request.body, headers={"content-type": request.content_type}
            )
        except httpx.HTTPError:
            statuses[0] += 1  # a connection that ended without an answer
            continue
        statuses[answer.status_code] += 1
        accepted += request.malformed and answer.status_code == 200
    return accepted


def _resident(process: psutil.Process) -> int:
    """Return the resident memory in bytes, or 0 if the process has died, so that the flood does not pass."""
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0
