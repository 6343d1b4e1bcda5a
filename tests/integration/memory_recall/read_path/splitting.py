"""Recalls that are split into three statements on two connections, and recorded."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from memory_recall.search.sql import execution, parallel


class Fetched:
    """Records on which sessions the statements of a recall run, and can change the database before any of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sessions: list[int] = []
        self.before_fusion: Callable[[], Awaitable[object]] | None = None
        self.before_lexical: Callable[[Any], Awaitable[object]] | None = None
        self.dense_done = asyncio.Event()  # the dense leg has answered
        self._fetch = execution._fetch
        monkeypatch.setattr(execution, "_fetch", self)
        monkeypatch.setattr(parallel, "WORTH_SPLITTING", 0)

    async def __call__(self, connection: Any, sent: Any, plan: Any) -> Sequence[Any]:
        self.sessions.append(connection.get_server_pid())
        if "given AS" in sent[0] and self.before_fusion is not None:
            await self.before_fusion()
        if "AS weights" in sent[0] and self.before_lexical is not None:
            await self.before_lexical(connection)
        rows = await self._fetch(connection, sent, plan)
        if "ORDER BY dense_rank), '{}') AS ids" in sent[0]:
            self.dense_done.set()
        return rows

    @property
    def split(self) -> bool:
        """Whether each recall so far took three statements on two sessions."""
        return len(self.sessions) % 3 == 0 and len(set(self.sessions)) == 2


def judged(result: Any) -> list[tuple[Any, ...]]:
    return [
        (
            one.id,
            one.content,
            pytest.approx(one.rank),
            one.evidence.lexical_rank,
            one.evidence.dense_rank,
            pytest.approx(one.relevance),
        )
        for one in result.memories
    ]
