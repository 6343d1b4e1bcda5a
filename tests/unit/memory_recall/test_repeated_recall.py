"""A recall that turns to another model's embedder is repeated, and what it had found before is never lost by that."""

import asyncio
import time
from typing import Any
from unittest.mock import AsyncMock

import pytest

from memory_recall import HybridRecall
from memory_recall.errors import DatabaseUnreachable
from memory_recall.search.hybrid_recall import Finding
from memory_recall.search.query import RecallQuery
from memory_recall.search.recall import Request
from memory_recall.search.sql.visibility import EVERYONE

Outcome = Finding | Exception | None


def finding(embedding_seconds: float) -> Finding:
    nothing: Any = None
    return Finding(nothing, nothing, None, 0.0, embedding_seconds)


class Following(HybridRecall):
    """Always turns to another embedder. An attempt finds something, fails, or never ends (None)."""

    def __init__(self, *outcomes: Outcome) -> None:
        self.pool = AsyncMock()
        super().__init__(self.pool)
        self.outcomes = list(outcomes)

    async def _attempt(self, *_: Any) -> Finding:
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        if outcome is None:
            await asyncio.Event().wait()
        assert isinstance(outcome, Finding)
        return outcome

    def _follow(self, _finding: Finding) -> bool:
        return True


async def found(recall: HybridRecall) -> Finding:
    query = RecallQuery("kettle", user_id=EVERYONE)
    async with asyncio.timeout(30):
        result = await recall.find(Request(query, own_columns=False, due=time.monotonic() + 0.2))
    await recall.close()
    return result


@pytest.mark.parametrize("outcome", [DatabaseUnreachable("gone"), None], ids=["fails", "is late"])
async def test_the_first_answer_is_kept_if_its_repetition_fails_or_is_late(outcome: Outcome) -> None:
    first = finding(0.1)
    recall = Following(first, outcome)
    assert await found(recall) is first
    assert recall.pool.expire_connections.await_count == (0 if outcome is None else 1), "the server may be gone"


async def test_a_repetition_in_time_replaces_the_first_answer_and_counts_the_embedding_of_both() -> None:
    assert (await found(Following(finding(0.1), finding(0.2)))).embedding_seconds == pytest.approx(0.3)
