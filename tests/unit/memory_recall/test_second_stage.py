"""The second stage: what it sends, how it orders, and that whatever fails it leaves the order of the fusion."""

import asyncio
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from memory_recall.embedding.client import EmbedderClient
from memory_recall.errors import EmbedderBroken, EmbedderRejected, EmbedderUnauthorized, InvalidInput, ModelMismatch
from memory_recall.search.fusion import SortBy
from memory_recall.search.query import RecallQuery
from memory_recall.search.result import Reranking
from memory_recall.search.second_stage import SecondStage, reordered, sendable
from memory_recall.search.sql.visibility import EVERYONE

LEFT = 1.5  # seconds of the recall's budget


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


def rows(*contents: str, sensitive: Sequence[int] = ()) -> list[Any]:
    return [
        {"id": number, "content": content, "is_sensitive": number in sensitive}
        for number, content in enumerate(contents)
    ]


def query(text: str = "where", **fields: Any) -> RecallQuery:
    return RecallQuery(text, user_id=EVERYONE, **fields)


async def ids_and_outcome(
    reranker: FakeReranker, asked: RecallQuery, found: list[Any], *, left: float = LEFT, **options: Any
) -> tuple[list[int], Reranking]:
    ordered, outcome = await SecondStage(reranker, **options).rerank(asked, found, left)
    return [row["id"] for row in ordered], outcome


async def test_the_first_results_are_ordered_by_their_scores_and_what_lies_deeper_stays() -> None:
    found = rows("a", "aaa", "aa", "aaaaa", "aaaa")
    assert await ids_and_outcome(FakeReranker(), query(), found, depth=3) == ([1, 2, 0, 3, 4], Reranking.DONE)


async def test_pages_are_cut_from_one_order_and_a_page_beyond_the_depth_is_left_alone() -> None:
    stage, found = SecondStage(FakeReranker(), depth=3), rows("a", "aaa", "aa", "aaaaa", "aaaa")
    pages = []
    for offset in range(0, 5, 2):
        asked = query(limit=2, offset=offset)
        wide = stage.widened(asked)
        page, _ = await stage.rerank(asked, found[wide.offset : wide.offset + wide.limit], LEFT)
        pages += [row["id"] for row in page]
    assert pages == [1, 2, 0, 3, 4]
    assert stage.widened(query(limit=2, offset=3)) == query(limit=2, offset=3)
    assert stage.widened(query(limit=10_000, offset=1)).limit == 10_000


async def test_sensitive_memories_keep_their_places_and_their_texts_are_not_sent() -> None:
    reranker = FakeReranker()
    found = rows("a", "CANARY" * 9, "aaa", "CANARY", "aa", sensitive=[1, 3])
    assert await ids_and_outcome(reranker, query(), found) == ([2, 1, 4, 3, 0], Reranking.DONE)
    assert reranker.sent == [("where", ["a", "aaa", "aa"])]


@pytest.mark.parametrize("mark", [True, None, 0, 1, "f", ""])
def test_only_a_row_that_is_known_not_to_be_sensitive_may_be_sent(mark: object) -> None:
    assert sendable([{"content": "CANARY", "is_sensitive": mark}]) == []


async def test_long_texts_are_cut_before_they_are_sent() -> None:
    reranker = FakeReranker()
    await ids_and_outcome(reranker, query("q" * 9000), rows("a" * 100_000, "b"))
    ((sent, texts),) = reranker.sent
    assert (len(sent), [len(text) for text in texts]) == (4096, [4096, 1])


FAILURES = {
    Reranking.FAILED: RuntimeError("CANARY"),
    Reranking.TIMEOUT: TimeoutError(),
    Reranking.UNAUTHORIZED: EmbedderUnauthorized("no key", "give one"),
    Reranking.REFUSED: EmbedderRejected("too large", "send less"),
}


@pytest.mark.parametrize(("outcome", "failure"), FAILURES.items(), ids=FAILURES.keys())
async def test_a_failure_leaves_the_fused_order_and_says_why_and_then_there_is_a_pause(
    outcome: Reranking, failure: Exception
) -> None:
    reranker, found = FakeReranker(failure), rows("a", "aaa", "aa")
    stage = SecondStage(reranker)
    assert await stage.rerank(query(limit=2), found, LEFT) == (found[:2], outcome)
    reranker.failure = None
    assert await stage.rerank(query(), found, LEFT) == (found, Reranking.PAUSED)
    assert len(reranker.sent) == 1


@pytest.mark.parametrize(("budget", "left"), [(0.01, LEFT), (1.0, 0.06), (1.0, -1.0)])
async def test_a_reranker_that_does_not_answer_in_its_budget_or_the_recalls_leaves_the_fused_order(
    budget: float, left: float
) -> None:
    reranker = FakeReranker(silent=True)
    got = await ids_and_outcome(reranker, query(), rows("a", "aaa"), budget=budget, left=left)
    assert got == ([0, 1], Reranking.TIMEOUT)


async def test_what_a_reranker_cannot_order_is_not_sent_and_the_result_says_why() -> None:
    reranker, found = FakeReranker(hosted=True), rows("a", "aaa")
    by_date = query(sort_by=SortBy.RECENCY)
    assert await ids_and_outcome(reranker, by_date, found) == ([0, 1], Reranking.OTHER_ORDER)
    assert await ids_and_outcome(reranker, query(offset=30), found) == ([0, 1], Reranking.BEYOND_DEPTH)
    assert await ids_and_outcome(reranker, query(sensitive=True), found) == ([0, 1], Reranking.SENSITIVE_QUERY)
    assert await ids_and_outcome(reranker, query(), rows("a", "b", sensitive=[0])) == (
        [0, 1],
        Reranking.NOTHING_TO_RERANK,
    )
    assert reranker.sent == []


@pytest.mark.parametrize("scores", [[1.0], [1.0, 2.0, 3.0], [1.0, float("nan")]])
def test_other_than_one_finite_score_for_each_text_is_no_order(scores: list[float]) -> None:
    with pytest.raises(ValueError, match=r"finite|argument"):
        reordered(rows("a", "b"), [0, 1], scores)


def test_equal_scores_keep_the_order_of_the_fusion() -> None:
    assert [row["id"] for row in reordered(rows("a", "b", "c"), [0, 1, 2], [1.0, 1.0, 2.0])] == [2, 0, 1]


def test_a_superseded_memory_never_moves_before_the_one_that_supersedes_it() -> None:
    """The newest takes the best score of a chain, wherever the reranker likes an older one better."""
    chain = rows("newest", "other", "newer", "old")
    for older in (2, 3):
        chain[older]["superseded_by"] = 0
    assert [row["id"] for row in reordered(chain, [0, 1, 2, 3], [0.1, 0.8, 0.5, 0.9])] == [0, 1, 2, 3]
    assert [row["id"] for row in reordered(chain, [0, 1, 2, 3], [0.1, 0.2, 0.5, 0.4])] == [0, 2, 1, 3]


@pytest.mark.parametrize("options", [{"depth": 1}, {"depth": 101}, {"budget": 0.0}])
def test_a_depth_or_a_budget_out_of_range_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="out of range"):
        SecondStage(FakeReranker(), **options)


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


async def test_an_embedder_without_a_reranker_is_named_and_no_text_is() -> None:
    async with client(404, {"error": {"code": "no_reranker", "message": "CANARY"}}) as http:
        with pytest.raises(ModelMismatch, match="no_reranker") as refusal:
            await http.rerank("CANARY", ["CANARY"])
    assert "CANARY" not in str(refusal.value)
