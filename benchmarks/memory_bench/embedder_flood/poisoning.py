"""Sends texts of which some have no finite vector, all at once, and counts whose requests fail."""

import asyncio
import random
from dataclasses import dataclass

import httpx

POISON = "zebra"  # the word whose weights are infinite in the served file
_EVERY = 10
_AT_ONCE = 40
_WORDS = ("router", "backup", "disk", "invoice", "garden", "night", "key")


@dataclass(frozen=True, slots=True)
class Poisoned:
    """How many requests were sent, how many innocent ones failed, and how many poisoned ones were not answered 422."""

    requests: int
    innocent_failures: int
    poisoned_otherwise: int


async def poison(url: str, count: int) -> Poisoned:
    """Send `count` requests, forty at once; one in ten has a poisoned text, every other time among innocent texts."""
    chance = random.Random(42)  # noqa: S311 -- a fixed mixture, not a secret
    innocent_failures = poisoned_otherwise = 0
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:

        async def send(number: int) -> int:
            texts = [" ".join(chance.choices(_WORDS, k=12)) for _ in range(1 + number % 3)]
            if number % _EVERY == 0:
                texts[-1] = f"a {POISON} and {texts[-1]}"
            body = {"input": texts, "input_type": "query" if number % 2 else "document"}
            return (await client.post("/v1/embeddings", json=body)).status_code

        for start in range(0, count, _AT_ONCE):
            numbers = range(start, min(count, start + _AT_ONCE))
            for number, status in zip(numbers, await asyncio.gather(*map(send, numbers)), strict=True):
                if number % _EVERY:
                    innocent_failures += status != 200
                else:
                    poisoned_otherwise += status != 422
    return Poisoned(count, innocent_failures, poisoned_otherwise)
