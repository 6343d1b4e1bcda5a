"""Has two callers send queries, and others send all the documents that they can, each with a key of its own."""

import asyncio
import random
import statistics
import time
from dataclasses import dataclass

import httpx

KEYS = ("first", "second", "bulk", "other-bulk")
_WORDS = ("router", "backup", "disk", "invoice", "garden", "night", "key", "boiler", "school", "train")
_WORDS_OF_A_DOCUMENT = 60
_TEXTS = 8  # of one request of documents
_REQUESTS_AT_ONCE = 4  # of one caller, as a backfill sends them
_QUERIES_A_SECOND = 5  # of one caller
_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Answered:
    """The milliseconds of queries: the median and the 95th percentile; and how many were answered."""

    p50_ms: float
    p95_ms: float
    queries: int


async def ask(url: str, seconds: float, part: str) -> Answered:
    """Have two callers ask for `seconds`, at a steady rate.

    The queries of each `part` of the measurement are others, since the embedder answers a repeated one from memory.
    """
    waits: list[float] = []

    async def caller(key: str) -> None:
        chance = random.Random(f"{part} {key}")  # noqa: S311  (texts are no secret)
        async with _client(url, key) as client:
            ends = time.perf_counter() + seconds
            while (began := time.perf_counter()) < ends:
                text = " ".join([*chance.choices(_WORDS, k=12), str(chance.random())])
                await _embed(client, [text], "query")
                waits.append(1000 * (time.perf_counter() - began))
                await asyncio.sleep(max(0.0, began + 1 / _QUERIES_A_SECOND - time.perf_counter()))

    await asyncio.gather(*map(caller, KEYS[:2]))
    return Answered(round(statistics.median(waits), 1), round(statistics.quantiles(waits, n=20)[-1], 1), len(waits))


async def fill(url: str, key: str, most: int, seconds: float) -> int:
    """Send documents of one caller until `most` are embedded or the time is over; return how many were."""
    chance, embedded, sent = random.Random(key), 0, 0  # noqa: S311  (as above)
    ends = time.perf_counter() + seconds
    async with _client(url, key) as client:

        async def request() -> None:
            nonlocal embedded, sent
            while sent < most and time.perf_counter() < ends:
                count = min(_TEXTS, most - sent)
                sent += count
                await _embed(
                    client, [" ".join(chance.choices(_WORDS, k=_WORDS_OF_A_DOCUMENT)) for _ in range(count)], "document"
                )
                embedded += count if time.perf_counter() < ends else 0

        await asyncio.gather(*(request() for _ in range(_REQUESTS_AT_ONCE)))
    return embedded


def _client(url: str, key: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, headers={"authorization": f"Bearer {key}"}, timeout=_SECONDS)


async def _embed(client: httpx.AsyncClient, texts: list[str], input_type: str) -> None:
    answer = await client.post("/v1/embeddings", json={"input": texts, "input_type": input_type})
    answer.raise_for_status()
