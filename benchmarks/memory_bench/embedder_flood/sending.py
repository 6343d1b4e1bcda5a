"""Attacks the server from a separate process, so that the attack's own work does not delay the measurements."""

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from memory_bench.embedder_flood.bodies import Request, requests
from memory_bench.embedder_flood.holding import Held, hold_connections
from memory_bench.servers import Server

_CONCURRENT = 16
_NICENESS = 10
_LONGEST_ANSWER_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Sent:
    """The server's answers to the requests of the flood.

    `statuses` counts the requests by status; 0 means no answer. `malformed` counts the malformed requests, and
    `malformed_accepted` counts the malformed requests that were answered with status 200.
    """

    statuses: dict[int, int]
    malformed: int
    malformed_accepted: int


def attack(server: Server, count: int, openapi: dict[str, Any], seed: int, share: float) -> tuple[Sent, Held]:
    """Send `count` requests, sixteen at a time, while connections are held open.

    The process lowers its own priority so that the server gets the processors, because real attackers use other
    machines. `share` is the fraction of the clients that hold connections open. Returns the answers to the requests and
    the lifetimes of the held connections.
    """
    os.nice(_NICENESS)
    return asyncio.run(_attack(server, requests(count, openapi, seed), share))


async def _attack(server: Server, waiting: Iterator[Request], share: float) -> tuple[Sent, Held]:
    sending = asyncio.create_task(_send(server.url, waiting))
    held = await hold_connections(server.port, lambda: not sending.done(), share)
    return await sending, held


async def _send(url: str, waiting: Iterator[Request]) -> Sent:
    statuses: Counter[int] = Counter()
    malformed: Counter[bool] = Counter()  # by whether it was accepted
    async with httpx.AsyncClient(base_url=url, timeout=_LONGEST_ANSWER_SECONDS) as client:

        async def work() -> None:
            for request in waiting:
                status = await _status(client, request)
                statuses[status] += 1
                if request.malformed:
                    malformed[status == 200] += 1

        await asyncio.gather(*(work() for _ in range(_CONCURRENT)))
    return Sent(dict(sorted(statuses.items())), malformed.total(), malformed[True])


async def _status(client: httpx.AsyncClient, request: Request) -> int:
    headers = {"content-type": request.content_type}
    try:
        return (await client.post("/v1/embeddings", content=request.body, headers=headers)).status_code
    except httpx.HTTPError:
        return 0  # the connection ended without an answer
