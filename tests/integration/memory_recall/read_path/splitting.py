"""Recalls that are split in three parts, watched, and what they give."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from memory_recall.search import execution
from memory_recall.search.sql import parallel


class Fetched:
    """What the parts of a recall are sent on, and a moment before the last of them to change the database in."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sessions: list[int] = []
        self.before_fusion: Callable[[], Awaitable[object]] | None = None
        self.before_words: Callable[[Any], Awaitable[object]] | None = None
        self.meaning = asyncio.Event()  # the dense leg has answered
        self._fetch = execution._fetch
        monkeypatch.setattr(execution, "_fetch", self)
        monkeypatch.setattr(parallel, "WORTH_SPLITTING", 0)

    async def __call__(self, connection: Any, sent: Any, readiness: Any) -> Sequence[Any]:
        self.sessions.append(connection.get_server_pid())
        if "given AS" in sent[0] and self.before_fusion is not None:
            await self.before_fusion()
        if "AS weights" in sent[0] and self.before_words is not None:
            await self.before_words(connection)
        rows = await self._fetch(connection, sent, readiness)
        if "ORDER BY dense_rank), '{}') AS ids" in sent[0]:
            self.meaning.set()
        return rows

    @property
    def split(self) -> bool:
        """Whether the recalls so far took three parts on two sessions each."""
        return len(self.sessions) % 3 == 0 and len(set(self.sessions)) == 2


def judged(result: Any) -> list[tuple[Any, ...]]:
    return [
        (one.id, one.content, pytest.approx(one.rank), one.evidence.lexical_rank, one.evidence.dense_rank)
        for one in result.memories
    ]
