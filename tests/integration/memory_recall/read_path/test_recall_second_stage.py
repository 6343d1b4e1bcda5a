"""A recall with a second stage: another order of the same memories, no sensitive text sent, the fused order else."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from memory_recall import InvalidInput, Reranking
from memory_recall.contrib.second_stage import SecondStage
from tests.integration.memory_recall.queries import make_query
from tests.integration.memory_recall.read_path.vectors import axis

QUESTION = "zfs scrub pool"


class ShortestFirst:
    """Prefers short texts, which no fusion does; it remembers all that it was sent."""

    def __init__(self, *, silent: bool = False) -> None:
        self.texts: list[str] = []
        self._silent = silent

    async def rerank(self, _query: str, texts: Sequence[str]) -> list[float]:
        self.texts += texts
        if self._silent:
            await asyncio.Event().wait()
        return [-float(len(text)) for text in texts]


async def test_the_first_results_are_reranked_and_a_page_is_a_part_of_that_order(filled: Any, embedder: Any) -> None:
    plain = filled.recalling(embedder)
    recall = SecondStage(filled.recalling(embedder), ShortestFirst(), depth=20)
    fused = (await plain.recall(make_query(QUESTION, limit=40))).memories
    result = await recall.recall(make_query(QUESTION, limit=40))
    public = [memory for memory in fused[:20] if not memory.is_sensitive]
    expected = iter(sorted(public, key=lambda memory: len(memory.content)))
    assert result.memories[:20] == tuple(memory if memory.is_sensitive else next(expected) for memory in fused[:20])
    assert result.memories[20:] == fused[20:]
    assert (result.reranked, result.reranking, result.degraded) == (True, Reranking.DONE, False)
    assert result.timings.total >= result.timings.reranking > 0
    page = await recall.recall(make_query(QUESTION, limit=4, offset=3))
    assert page.ids == result.ids[3:7]
    rows = await recall.recall_rows(make_query(QUESTION, limit=7))
    assert [row["id"] for row in rows] == result.ids[:7]
    assert (await plain.recall(make_query(QUESTION))).reranking is Reranking.OFF


@pytest.mark.parametrize("mode", ["hybrid", "lexical", "dense"])
async def test_no_text_of_a_sensitive_memory_is_ever_sent_to_the_reranker(
    memories: Any, embedder: Any, mode: str
) -> None:
    """Neither of the reader's own ones, which he finds, nor what a memory says that has become sensitive since."""
    for number in range(4):
        await memories.add(f"zfs scrub {number}", vector=axis(1.0, number / 9), user_id="ana")
        await memories.add(f"zfs password hunter2 {number}", sensitive=True, tags="hunter2", user_id="ana")
    turned = await memories.add("zfs pool pin kestrel", vector=axis(1.0, 0.1), user_id="ana")
    reranker = ShortestFirst()
    recall = SecondStage(memories.recalling(embedder), reranker)
    asked = make_query("zfs hunter2 kestrel", mode=mode, user_id="ana", limit=50)
    assert (await recall.recall(asked)).reranked
    assert any("kestrel" in text for text in reranker.texts)
    await memories.pool.execute("UPDATE memories SET is_sensitive = true WHERE id = $1", turned)
    reranker.texts.clear()
    result = await recall.recall(asked)
    await recall.recall_rows(asked)
    assert result.reranked
    assert any(memory.is_sensitive for memory in result.memories) == (mode != "dense")
    assert reranker.texts
    assert not [text for text in reranker.texts if "hunter2" in text or "kestrel" in text or "SENSITIVE" in text]


async def test_a_reranker_that_never_answers_leaves_the_fused_order_within_the_recalls_budget(
    filled: Any, embedder: Any
) -> None:
    recall = SecondStage(filled.recalling(embedder), ShortestFirst(silent=True), budget=0.05)
    result = await recall.recall(make_query(QUESTION, limit=10))
    assert result.memories == (await filled.recalling(embedder).recall(make_query(QUESTION, limit=10))).memories
    assert (result.reranked, result.reranking) == (False, Reranking.TIMEOUT)


async def test_budgets_that_do_not_fit_into_the_recalls_are_refused(memories: Any) -> None:
    recall = memories.recalling(time_budget=2.0)
    with pytest.raises(InvalidInput, match="do not fit"):
        SecondStage(recall, ShortestFirst(), budget=1.9)
