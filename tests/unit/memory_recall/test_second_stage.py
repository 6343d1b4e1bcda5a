"""The second stage: what it sends, how it orders, and that whatever fails it leaves the order of the fusion."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest

from memory_recall.contrib.second_stage import SecondStage, reordered, sendable
from memory_recall.embedding.client import EmbedderClient
from memory_recall.errors import EmbedderBroken, EmbedderRejected, EmbedderUnauthorized, InvalidInput, ModelMismatch
from memory_recall.search.fusion import SortBy
from memory_recall.search.query import RecallQuery
from memory_recall.search.recall import Recalled, Request
from memory_recall.search.relevance import RelevanceScale, least_relevance_of
from memory_recall.search.result import RecalledMemory, Reranking
from memory_recall.search.sql.visibility import EVERYONE
from tests.unit.memory_recall.fake_recall import FakeRecall, memory


class FakeReranker:
    """Scores a text by its length, or raises what it is given; it remembers what it was sent."""

    def __init__(self, failure: Exception | None = None, *, silent: bool = False, hosted: bool = False) -> None:
        self.failure = failure
        self.hosted = hosted
        self.sent: list[tuple[str, list[str]]] = []
        self._silent = silent

    async def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        self.sent.append((query, list(texts)))
        if self._silent:
            await asyncio.Event().wait()
        if self.failure is not None:
            raise self.failure
        return [float(len(text)) for text in texts]


def memories(*contents: str, sensitive: Sequence[int] = ()) -> list[RecalledMemory]:
    return [memory(number, content, sensitive=number in sensitive) for number, content in enumerate(contents)]


def query(text: str = "where", **fields: Any) -> RecallQuery:
    return RecallQuery(text, user_id=EVERYONE, **fields)


async def ids_and_outcome(
    reranker: FakeReranker, asked: RecallQuery, found: list[RecalledMemory], **options: Any
) -> tuple[list[int], Reranking]:
    result = await SecondStage(FakeRecall(found), reranker, **options).recall(asked)
    return result.ids, result.reranking


async def test_the_first_results_are_ordered_by_their_scores_and_what_lies_deeper_stays() -> None:
    found = memories("a", "aaa", "aa", "aaaaa", "aaaa")
    assert await ids_and_outcome(FakeReranker(), query(), found, depth=3) == ([1, 2, 0, 3, 4], Reranking.DONE)


async def test_pages_are_cut_from_one_order_and_a_page_beyond_the_depth_is_left_alone() -> None:
    within = FakeRecall(memories("a", "aaa", "aa", "aaaaa", "aaaa"))
    stage, pages = SecondStage(within, FakeReranker(), depth=3), []
    for offset in range(0, 5, 2):
        pages += (await stage.recall(query(limit=2, offset=offset))).ids
    assert pages == [1, 2, 0, 3, 4]
    rows = await stage.recall_rows(query(limit=2, offset=1))
    assert rows == [{"id": 2}, {"id": 0}]
    await stage.recall(query(limit=2, offset=3))
    await stage.recall(query(limit=10_000, offset=1))
    assert within.requests[-2].query == query(limit=2, offset=3)
    assert within.requests[-1].query.limit == 10_000


class RelevantRecall(FakeRecall):
    """Finds memories of given relevance, and holds back what the query it is asked demands."""

    async def answer(self, request: Request) -> Recalled:
        recalled, least = await super().answer(request), least_relevance_of(request.query.least_relevance)
        found = recalled.result.memories
        kept = [one for one in found if least is None or least.met_by(one.relevance or 0.0, by_words=True)]
        rows = [{"id": one.id} for one in kept] if request.own_columns else ()
        scale = RelevanceScale(None, None, None)
        result = replace(recalled.result, memories=tuple(kept), held_back=len(found) - len(kept), relevance_scale=scale)
        return Recalled(result, rows)


async def test_what_is_too_little_relevant_is_held_back_of_the_page_alone() -> None:
    """The page is that of the new order, and what the query demands does not change which memories are on it."""
    found = [
        replace(one, relevance=relevance)
        for one, relevance in zip(memories("a", "aaa", "aa", "aaaaa", "aaaa"), (0.9, 0.05, 0.9, 0.9, 0.05), strict=True)
    ]
    stage = SecondStage(RelevantRecall(found), FakeReranker())
    everything = await stage.recall(query(limit=2))
    likely = await stage.recall(query(limit=2, least_relevance="likely"))
    assert (everything.ids, everything.held_back) == ([3, 4], 0)
    assert (likely.ids, likely.held_back) == ([3], 1)
    assert await stage.recall_rows(query(limit=2, offset=1, least_relevance="likely")) == []


async def test_sensitive_memories_keep_their_places_and_their_texts_are_not_sent() -> None:
    reranker = FakeReranker()
    found = memories("a", "CANARY" * 9, "aaa", "CANARY", "aa", sensitive=[1, 3])
    assert await ids_and_outcome(reranker, query(), found) == ([2, 1, 4, 3, 0], Reranking.DONE)
    assert reranker.sent == [("where", ["a", "aaa", "aa"])]


@pytest.mark.parametrize("mark", [True, None, 0, 1, "f", ""])
def test_only_a_row_that_is_known_not_to_be_sensitive_may_be_sent(mark: object) -> None:
    assert sendable([memory(1, "CANARY", sensitive=mark)]) == []


async def test_long_texts_are_cut_before_they_are_sent() -> None:
    reranker = FakeReranker()
    await ids_and_outcome(reranker, query("q" * 9000), memories("a" * 100_000, "b"))
    ((sent, texts),) = reranker.sent
    assert (len(sent), [len(text) for text in texts]) == (4096, [4096, 1])


FAILURES = {
    Reranking.FAILED: RuntimeError("CANARY"),
    Reranking.TIMEOUT: TimeoutError(),
    Reranking.UNAUTHORIZED: EmbedderUnauthorized("no key", "give one"),
}


@pytest.mark.parametrize(("outcome", "failure"), FAILURES.items(), ids=FAILURES.keys())
async def test_a_failure_leaves_the_fused_order_and_says_why_and_then_there_is_a_pause(
    outcome: Reranking, failure: Exception
) -> None:
    reranker = FakeReranker(failure)
    stage = SecondStage(FakeRecall(memories("a", "aaa", "aa")), reranker)
    first = await stage.recall(query(limit=2))
    assert (first.ids, first.reranking) == ([0, 1], outcome)
    reranker.failure = None
    second = await stage.recall(query())
    assert (second.ids, second.reranking) == ([0, 1, 2], Reranking.PAUSED)
    assert len(reranker.sent) == 1


async def test_after_a_refused_query_the_next_one_is_reranked() -> None:
    """Its cause may lie in that query, whose author could otherwise keep everybody's from being reranked."""
    reranker = FakeReranker(EmbedderRejected("too large", "send less"))
    stage = SecondStage(FakeRecall(memories("a", "aaa", "aa")), reranker)
    assert (await stage.recall(query())).reranking is Reranking.REFUSED
    reranker.failure = None
    assert (await stage.recall(query())).reranking is Reranking.DONE


@pytest.mark.parametrize("left", [0.3, 0.0, -1.0])
async def test_a_reranker_that_is_not_asked_for_want_of_time_is_asked_by_the_next_recall(left: float) -> None:
    reranker = FakeReranker()
    stage = SecondStage(FakeRecall(memories("a", "aaa")), reranker, budget=1.0)
    recalled = await stage.answer(Request(query(), own_columns=False, due=time.monotonic() + left))
    assert (recalled.result.ids, recalled.result.reranking, reranker.sent) == ([0, 1], Reranking.TIMEOUT, [])
    assert (await stage.recall(query())).reranking is Reranking.DONE


@pytest.mark.parametrize(("budget", "left"), [(0.01, 1.5), (0.1, 0.11)])
async def test_a_reranker_that_does_not_answer_in_its_budget_or_the_recalls_leaves_the_fused_order(
    budget: float, left: float
) -> None:
    stage = SecondStage(FakeRecall(memories("a", "aaa")), FakeReranker(silent=True), budget=budget)
    recalled = await stage.answer(Request(query(), own_columns=False, due=time.monotonic() + left))
    assert (recalled.result.ids, recalled.result.reranking) == ([0, 1], Reranking.TIMEOUT)
    again = await stage.answer(Request(query(), own_columns=False, due=time.monotonic() + left))
    assert (again.result.reranking is Reranking.PAUSED) is (budget < left - 0.05), "only if it had its whole budget"


async def test_what_a_reranker_cannot_order_is_not_sent_and_the_result_says_why() -> None:
    reranker, found = FakeReranker(hosted=True), memories("a", "aaa")
    by_date = query(sort_by=SortBy.RECENCY)
    assert await ids_and_outcome(reranker, by_date, found) == ([0, 1], Reranking.OTHER_ORDER)
    assert await ids_and_outcome(reranker, query(offset=30), found) == ([], Reranking.BEYOND_DEPTH)
    assert await ids_and_outcome(reranker, query(sensitive=True), found) == ([0, 1], Reranking.SENSITIVE_QUERY)
    assert await ids_and_outcome(reranker, query(), memories("a", "b", sensitive=[0])) == (
        [0, 1],
        Reranking.NOTHING_TO_RERANK,
    )
    assert reranker.sent == []


@pytest.mark.parametrize("scores", [[1.0], [1.0, 2.0, 3.0], [1.0, float("nan")]])
def test_other_than_one_finite_score_for_each_text_is_no_order(scores: list[float]) -> None:
    with pytest.raises(ValueError, match=r"finite|argument"):
        reordered(memories("a", "b"), [0, 1], scores)


def test_equal_scores_keep_the_order_of_the_fusion() -> None:
    assert reordered(memories("a", "b", "c"), [0, 1, 2], [1.0, 1.0, 2.0]) == [2, 0, 1]


def test_a_superseded_memory_never_moves_before_the_one_that_supersedes_it() -> None:
    """The newest takes the best score of a chain, wherever the reranker likes an older one better."""
    chain = [memory(number, "a", superseded_by=0 if number > 1 else None) for number in range(4)]
    assert reordered(chain, [0, 1, 2, 3], [0.1, 0.8, 0.5, 0.9]) == [0, 1, 2, 3]
    assert reordered(chain, [0, 1, 2, 3], [0.1, 0.2, 0.5, 0.4]) == [0, 2, 1, 3]


@pytest.mark.parametrize("options", [{"depth": 1}, {"depth": 101}, {"budget": 0.0}])
def test_a_depth_or_a_budget_out_of_range_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="out of range"):
        SecondStage(FakeRecall(), FakeReranker(), **options)


def client(status: int, payload: object, seen: list[httpx.Request] | None = None) -> EmbedderClient:
    def handle(request: httpx.Request) -> httpx.Response:
        if seen is not None:
            seen.append(request)
        return httpx.Response(status, json=payload)

    return EmbedderClient("http://embedder", "tiny", "key", transport=httpx.MockTransport(handle))


async def test_the_client_returns_scores_in_the_order_of_the_texts_and_sends_the_key() -> None:
    seen: list[httpx.Request] = []
    answer = {"results": [{"index": 1, "relevance_score": 2.5}, {"index": 0, "relevance_score": -1}]}
    async with client(200, answer, seen) as http:
        assert await http.rerank("q", ["a", "b"]) == [-1.0, 2.5]
        assert await http.rerank("q", []) == []
    (request,) = seen
    assert (request.url.path, request.headers["authorization"]) == ("/v1/rerank", "Bearer key")


@pytest.mark.parametrize(
    "results",
    [
        [],
        [{"index": 0, "relevance_score": 1}],
        [{"index": 0, "relevance_score": 1}, {"index": 0, "relevance_score": 1}],
        [{"index": 0, "relevance_score": 1}, {"index": 2, "relevance_score": 1}],
        [{"index": 0, "relevance_score": 1}, {"index": 1, "relevance_score": "nan"}],
        [{"index": 0, "relevance_score": 1}, {"index": 1, "relevance_score": None}],
        None,
    ],
)
async def test_an_answer_without_one_finite_score_for_each_text_is_refused(results: object) -> None:
    async with client(200, {"results": results}) as http:
        with pytest.raises(EmbedderBroken, match=r"scores|finite score"):
            await http.rerank("q", ["a", "b"])


async def test_a_call_that_is_cancelled_before_there_is_a_connection_sends_no_text_once_there_is_one() -> None:
    """A memory may have become sensitive by then; the request itself runs on, for the sake of its connection."""
    connected, bodies = asyncio.Event(), list[bytes]()

    class Slow(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            await connected.wait()
            bodies.append(await request.aread())
            return httpx.Response(200, json={"results": [{"index": 0, "relevance_score": 1}]})

    async with EmbedderClient("http://embedder", transport=Slow()) as http:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await http.rerank("q", ["CANARY"])
        connected.set()
        assert await http.rerank("q", ["kept"]) == [1.0]
    assert [b"CANARY" in body for body in bodies] == [False]


async def test_an_embedder_without_a_reranker_is_named_and_no_text_is() -> None:
    async with client(404, {"error": {"code": "no_reranker", "message": "CANARY"}}) as http:
        with pytest.raises(ModelMismatch, match="no_reranker") as refusal:
            await http.rerank("CANARY", ["CANARY"])
    assert "CANARY" not in str(refusal.value)
