"""Has many callers ask at the same time, each on a connection of its own, and counts who is left without an answer."""

import asyncio
from collections import Counter
from dataclasses import dataclass

import aiohttp

_SECONDS = 120


@dataclass(frozen=True, slots=True)
class ManyCallers:
    """How many callers asked, the answers by status, and how many were reset or never answered."""

    callers: int
    statuses: dict[int, int]
    resets: int

    @property
    def refused_otherwise(self) -> int:
        """The number of answers that are neither vectors nor the request to come again (429)."""
        return sum(number for status, number in self.statuses.items() if status not in {200, 429})


async def ask_at_once(url: str, callers: int) -> ManyCallers:
    """Send one query for each caller, all at once."""
    statuses: Counter[int] = Counter()
    resets = 0
    limit = aiohttp.ClientTimeout(total=_SECONDS)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=limit) as session:

        async def ask(number: int) -> None:
            nonlocal resets
            body = {"input": f"a question of caller {number}", "input_type": "query"}
            try:
                async with session.post(f"{url}/v1/embeddings", json=body) as answer:
                    await answer.read()
                    statuses[answer.status] += 1
            except (aiohttp.ClientError, TimeoutError):
                resets += 1

        await asyncio.gather(*map(ask, range(callers)))
    return ManyCallers(callers, dict(sorted(statuses.items())), resets)
