"""Another file under the same model name is another model: it is noticed wherever a vector is made or compared."""

import pytest
from pgvector.asyncpg import register_vector

from memory_recall import HybridRecall, RecallOptions, create_pool
from memory_recall.embedding.client import EmbedderClient
from memory_recall.embedding.profiles import served_digest
from memory_recall.errors import ModelMismatch, SwapInProgress
from memory_recall.evaluation.evaluate import Question
from memory_recall.search.result import Degraded
from memory_recall.search.sql.visibility import EVERYONE
from memory_recall.swap.gate import measure
from tests.integration.memory_recall.queries import make_query
from tests.integration.memory_recall.swap.conftest import SwapBench, at_once, halved
from tests.integration.memory_recall.swap.test_swap_recall import recalling
from tests.integration.memory_recall.workbench import DIMENSIONS

OTHER = "sha256:cc"
QUESTIONS = [Question(str(n), f"text {n}", "all", EVERYONE, frozenset({n + 1})) for n in range(4)]


async def test_a_query_of_another_file_is_not_compared_with_the_vectors(swaps: SwapBench) -> None:
    """The embedder's pods were replaced by ones with another file; no request failed."""
    async with recalling(swaps) as recall:
        assert (await recall.recall(make_query("text 7"))).reason is None
        swaps.work.embedder.digest = OTHER
        result = await recall.recall(make_query("text 7"))
        assert result.reason is Degraded.MODEL_MISMATCH
        assert all(memory.evidence.dense_score is None for memory in result.memories)
        swaps.work.embedder.digest = None  # a third-party embedder, which puts no prefix before the query
        assert (await recall.recall(make_query("text 7"))).reason is Degraded.EMBEDDER_FAILED


async def test_a_client_that_names_no_model_is_told_from_the_active_one_by_its_file(swaps: SwapBench) -> None:
    """Before a swap its vectors are compared with those of the table, and not after it."""
    pool = await create_pool(swaps.source)
    async with EmbedderClient(swaps.work.embedder.url) as embedder:
        recall = HybridRecall(pool, embedder, RecallOptions(embedding_budget=5.0, time_budget=60.0))
        try:
            assert (await recall.recall(make_query("text 7"))).reason is None
            await swaps.swap()
            assert (await recall.recall(make_query("text 7"))).reason is Degraded.MODEL_MISMATCH
        finally:
            await recall.close()
            await pool.close()


async def test_no_vector_of_another_file_is_stored_although_no_request_failed(swaps: SwapBench) -> None:
    """The file is replaced between two batches of a worker."""
    await swaps.work.execute("UPDATE memories SET content = 'edited ' || id")
    embedder, requests = swaps.work.embedder, 0

    def replaced(_texts: list[str]) -> None:
        nonlocal requests
        requests += 1
        if requests == 2:
            embedder.digest, embedder.salt = OTHER, "other:"

    embedder.behaviour = replaced
    with pytest.raises(ModelMismatch, match=OTHER):
        await swaps.work.backfill()
    assert requests >= 2
    embedder.salt = ""
    assert await swaps.problems(complete=False) == []


async def test_the_gate_measures_no_embedder_of_another_file(swaps: SwapBench) -> None:
    """Neither model's: the numbers would be those of vectors that cannot be compared."""
    await swaps.swap(flip=False)
    async with (
        EmbedderClient(swaps.work.embedder.url, "tiny") as active,
        EmbedderClient(swaps.following.url, "small") as following,
    ):
        for embedder in (swaps.work.embedder, swaps.following):
            embedder.digest, right = OTHER, embedder.digest
            verdict = await measure(
                swaps.source, "memories", QUESTIONS,
                active=active, following=following, max_drop=1.0, retrying=at_once,
            )  # fmt: skip
            assert (verdict.outcome, verdict.reason) == ("refused", "NotMeasurable")
            embedder.digest = right
        verdict = await measure(
            swaps.source, "memories", QUESTIONS, active=active, following=following, max_drop=1.0, retrying=at_once
        )
        assert verdict.outcome == "passed"


async def test_another_file_of_the_active_model_becomes_active_by_a_swap(swaps: SwapBench) -> None:
    """Both embedders serve a model of one name; recalls follow to the file that made the vectors, and back."""
    swaps.following.model = "tiny"
    async with recalling(swaps) as recall:
        for back in (False, True):
            assert (await swaps.swap(back=back)).stage == "flipped"
            result = await recall.recall(make_query("text 7", mode="dense"))
            assert (result.reason, result.memories[0].content) == (None, "text 7")
            assert result.memories[0].evidence.dense_score == pytest.approx(1, abs=0.01)
    assert (await swaps.roles()).active.digest == "sha256:aa"


async def test_a_file_that_is_served_with_another_prefix_than_before_is_embedded_anew(swaps: SwapBench) -> None:
    """Its embedder says another digest, so that the former vectors, which are still there, are not made active."""
    await swaps.swap()
    embedder, prefix = swaps.work.embedder, "passage: "
    embedder.salt, embedder.digest = prefix, served_digest("sha256:aa", "tiny", "mean", "", prefix)
    assert (await swaps.swap(target=swaps.target(name="tiny", digest=embedder.digest))).stage == "flipped"
    async with swaps.work.database.connection() as connection:
        await register_vector(connection)
        rows = await connection.fetch("SELECT content, embedding FROM memories")
    assert all(row["embedding"] == halved(row["content"], prefix, DIMENSIONS) for row in rows)


async def test_a_swap_goes_on_with_no_embedder_that_puts_another_prefix_before_the_texts(swaps: SwapBench) -> None:
    await swaps.swap(flip=False)
    swaps.following.digest = served_digest("sha256:bb", "small", "mean", "", "passage: ")
    with pytest.raises(SwapInProgress, match="abort"):
        await swaps.swap()
