"""Measures how long the kubelet and another caller wait for an answer during a flood."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import httpx

_PAUSE_SECONDS = 0.1
_PROBE_SECONDS = 10.0  # the timeout of the operator's liveness probe
_QUERY_SECONDS = 30.0
_QUERY = {"input": "where is the backup of the old disk", "input_type": "query", "encoding_format": "base64"}


@dataclass(slots=True)
class Waits:
    """The waiting times of one client.

    `requests` counts all requests, `longest_ms` is the longest wait in milliseconds, and `failures` counts the requests
    that were not answered with status 200.
    """

    requests: int = 0
    longest_ms: float = 0.0
    failures: int = 0

    def record(self, seconds: float, *, answered: bool) -> None:
        """Record how many seconds one request took, and whether it was answered with status 200."""
        self.requests += 1
        self.longest_ms = round(max(self.longest_ms, seconds * 1000), 1)
        self.failures += not answered


async def probe_health(probe_url: str, attacked: Callable[[], bool]) -> Waits:
    """Request /healthz repeatedly while the flood lasts, each time over a new connection, as the kubelet does."""
    async with httpx.AsyncClient(
        base_url=probe_url, timeout=_PROBE_SECONDS, limits=httpx.Limits(max_keepalive_connections=0)
    ) as client:
        return await _repeat(lambda: client.get("/healthz"), attacked)


async def send_queries(url: str, attacked: Callable[[], bool]) -> Waits:
    """Send one short query after another while the flood lasts, as the memory server of another user does."""
    async with httpx.AsyncClient(base_url=url, timeout=_QUERY_SECONDS) as client:
        return await _repeat(lambda: client.post("/v1/embeddings", json=_QUERY), attacked)


async def _repeat(request: Callable[[], Awaitable[httpx.Response]], attacked: Callable[[], bool]) -> Waits:
    waits = Waits()
    while attacked():
        started = time.monotonic()
        try:
            answered = (await request()).status_code == 200
        except httpx.HTTPError:
            answered = False
        waits.record(time.monotonic() - started, answered=answered)
        await asyncio.sleep(_PAUSE_SECONDS)
    return waits
