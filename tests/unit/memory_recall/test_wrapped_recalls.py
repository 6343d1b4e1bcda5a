"""Recalls that wrap others: one time budget covers all, one result is observed, and the order makes no difference."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from memory_recall.contrib.query_expansion import QueryExpansion
from memory_recall.contrib.second_stage import SecondStage
from memory_recall.errors import DatabaseUnreachable, InvalidInput
from memory_recall.search.query import RecallQuery
from memory_recall.search.recall import Recall, Recalled, Request
from memory_recall.search.result import Expansion, RecallResult, Reranking
from memory_recall.search.sql.visibility import EVERYONE
from tests.unit.memory_recall.fake_recall import FakeRecall, memory

QUERY = RecallQuery("backup", user_id=EVERYONE, expand=True)


class Model:
    """A language model and a reranker that prefers long texts."""

    async def complete(self, _instruction: str, _text: str, *, most_tokens: int) -> str:
        return "copy" if most_tokens else ""

    async def rerank(self, _query: str, texts: Sequence[str]) -> list[float]:
        return [float(len(text)) for text in texts]


class Hanging(FakeRecall):
    """Never answers."""

    async def answer(self, request: Request) -> Recalled:
        await asyncio.Event().wait()
        return await super().answer(request)


def expanded_first(recall: Recall, **budgets: Any) -> Recall:
    return SecondStage(QueryExpansion(recall, Model(), **budgets), Model(), **budgets)


def reranked_first(recall: Recall, **budgets: Any) -> Recall:
    return QueryExpansion(SecondStage(recall, Model(), **budgets), Model(), **budgets)


WRAPPED = pytest.mark.parametrize("wrapped", [expanded_first, reranked_first])


@WRAPPED
async def test_the_outermost_recall_alone_reports_what_all_have_done(wrapped: Any) -> None:
    observed: list[RecallResult] = []
    within = FakeRecall([memory(1, "a"), memory(2, "aa")], observe=observed.append)
    result = await wrapped(within).recall(QUERY)
    assert observed == [result]
    assert (result.ids, result.reranking, result.expansion) == ([2, 1], Reranking.DONE, Expansion.DONE)
    assert [words and words.text for words in within.further] == ["copy"]


@WRAPPED
async def test_one_time_budget_covers_a_recall_and_all_that_wraps_it(wrapped: Any) -> None:
    recall = wrapped(Hanging(time_budget=0.1, embedding_budget=0.01), budget=0.02)
    async with asyncio.timeout(60):
        with pytest.raises(DatabaseUnreachable, match=r"within its 0\.1 seconds"):
            await recall.recall(QUERY)
        await recall.close()


@WRAPPED
def test_the_budgets_of_all_parts_have_to_fit_into_the_recall_s(wrapped: Any) -> None:
    """The expansion and the embedding run at the same time, so the longer of both counts."""
    assert wrapped(FakeRecall(embedding_budget=0.25), budget=0.5).reserved == 1.0
    with pytest.raises(InvalidInput, match="do not fit"):
        wrapped(FakeRecall(time_budget=1.0), budget=0.5)


@WRAPPED
async def test_closing_the_outermost_recall_closes_the_others(wrapped: Any) -> None:
    within = Hanging(time_budget=60.0)
    waiting = asyncio.create_task(within.recall(QUERY))
    await asyncio.sleep(0)
    await wrapped(within).close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
