"""Asks the memory API questions, and checks the answers: found memories, replaced memories, and masked texts."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import orjson

from tests.client import memories
from tests.client.api import Memories, MemoryApi

HOOK_LIMIT = 5  # memories that a hook asks for before a prompt
LEVELS = ("everything", "likely")

Recall = Callable[[str], Coroutine[Any, Any, Memories]]


@dataclass(frozen=True)
class Stored:
    """The ids of the stored memories: those that answer a question, and the superseded one with its successor."""

    answers: tuple[int, ...]
    superseded: int
    successor: int


@dataclass(frozen=True)
class Findings:
    """The result of a round of questions; `found` is the number of questions whose right memory was returned."""

    found: int
    asked: int
    links_kept: bool
    sensitive_texts: int


async def store_all(url: str, others: list[str]) -> Stored:
    """Store `others` and our memories over REST; two are linked as superseded and successor, and two are sensitive."""
    api, other = MemoryApi(url), MemoryApi(url, memories.OTHER_USER)
    try:
        for content in others:
            await api.store(content)
        answers = [await api.store(answer) for answer, _ in memories.PAIRS]
        superseded, successor = await api.store(memories.SUPERSEDED), await api.store(memories.SUCCESSOR)
        await api.link(successor, superseded, "supersedes")
        await api.store(memories.SENSITIVE[0], sensitive=True)
        await other.store(memories.SENSITIVE[1], sensitive=True)
    finally:
        await asyncio.gather(api.close(), other.close())
    return Stored(tuple(answers), superseded, successor)


async def converse(url: str, stored: Stored) -> Findings:
    """Ask every question by the route and by the tool; check links, and count shown words of sensitive memories."""
    api, other = MemoryApi(url), MemoryApi(url, memories.OTHER_USER)
    try:
        found, kept, seen = 0, True, 0
        for recall in (api.recall, api.recall_by_tool):
            for (_, question), answer in zip(memories.PAIRS, stored.answers, strict=True):
                found += answer in ids(await recall(question))
            kept = kept and await _redirects(recall, stored)
        for asking in (api, other):
            for recall in (asking.recall, asking.recall_by_tool):
                answers = [await recall(question) for question in memories.ASKS_FOR_SENSITIVE]
                seen += sensitive_texts(answers)
        asked = 2 * len(memories.PAIRS)
    finally:
        await asyncio.gather(api.close(), other.close())
    return Findings(found, asked, kept, seen)


async def rows_for_unanswerable(url: str, prompts: list[str]) -> dict[str, float]:
    """Ask prompts that no memory answers, and return the mean number of memories of an answer at each level."""
    api = MemoryApi(url)
    try:
        rows = {
            level: [len(await api.recall(prompt, limit=HOOK_LIMIT, least_relevance=level)) for prompt in prompts]
            for level in LEVELS
        }
    finally:
        await api.close()
    return {level: round(sum(counts) / len(counts), 2) for level, counts in rows.items()}


async def _redirects(recall: Recall, stored: Stored) -> bool:
    """Return whether an answer holds the successor, with its link `supersedes`, in place of the superseded memory."""
    answer = await recall(memories.ASKS_FOR_SUPERSEDED)
    heads = [memory for memory in answer if memory["id"] == stored.successor]
    link = {"type": "supersedes", "dir": "out", "id": stored.superseded}
    return stored.superseded not in ids(answer) and len(heads) == 1 and link in heads[0]["links"]


def ids(answer: Memories) -> set[int]:
    """Return the ids of an answer's memories."""
    return {int(memory["id"]) for memory in answer}


def sensitive_texts(value: object) -> int:
    """Return how many words of sensitive memories an answer shows."""
    text = orjson.dumps(value).decode()
    return sum(text.count(canary) for canary in memories.CANARIES)
