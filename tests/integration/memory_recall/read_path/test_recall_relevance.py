"""A recall holds back what is less relevant than its query demands, and says so; where it cannot know, it does not.

The vectors of the tests make the usual cosine and the cosine of each memory what a test wants them to be.
"""

import math
from typing import Any

import pytest

from memory_recall.search.relevance import RelevanceBasis, RelevanceScale
from memory_recall.search.result import Degraded
from tests.integration.memory_recall.queries import make_query
from tests.integration.memory_recall.read_path.vectors import axis

USUAL = 0.3
NEAR, FAR = axis(0.9, math.sqrt(1 - 0.81)), axis(0.3, 0.0, math.sqrt(1 - 0.09))


@pytest.fixture
async def known(memories: Any) -> Any:
    """A table whose usual cosine is known, of a memory that is near to each query, and one that is not."""
    await memories.pool.execute("UPDATE memory_index_models SET usual_cosine = $1", USUAL)
    await memories.add("The boiler was serviced in May", vector=NEAR)
    await memories.add("Tomatoes like sun", vector=FAR)
    return memories


async def test_everything_is_returned_unless_a_query_demands_relevance(known: Any, embedder: Any) -> None:
    """Then a memory has none, and the statement is that of before."""
    result = await known.recalling(embedder).recall(make_query("nightly copies"))
    assert len(result.ids) == 2
    assert {one.relevance for one in result.memories} == {None}
    assert (result.relevance_basis, result.relevance_scale, result.held_back) == (RelevanceBasis.NOT_ASKED, None, 0)


async def test_a_prompt_that_no_memory_fits_gets_none(known: Any, embedder: Any) -> None:
    """Although there are nearest memories, as there always are."""
    embedder.vectors["Write a haiku"] = axis(0.2, 0.1, 0.2, 0.9)
    result = await known.recalling(embedder).recall(make_query("Write a haiku", least_relevance="likely"))
    assert (result.ids, result.held_back) == ([], 2)
    assert result.relevance_basis is RelevanceBasis.MEANING_AND_WORDS


async def test_a_memory_that_fits_is_returned_with_its_relevance(known: Any, embedder: Any) -> None:
    result = await known.recalling(embedder).recall(make_query("boiler service", least_relevance="certain"))
    best = result.memories[0]
    assert "boiler" in best.content
    scale = result.relevance_scale
    assert scale == RelevanceScale(
        pytest.approx(0.9, abs=1e-3), best.evidence.lexical_score, scale.max_lexical_score, USUAL
    )
    row = {"dense_score": best.evidence.dense_score, "lexical_score": best.evidence.lexical_score}
    assert best.relevance == scale.relevance_of(row) > 0.9


async def test_a_number_is_a_least_relevance_too_and_zero_holds_nothing_back(known: Any, embedder: Any) -> None:
    recall = known.recalling(embedder)
    all_of_them = await recall.recall(make_query("boiler", least_relevance=0.0))
    assert (len(all_of_them.ids), all_of_them.held_back) == (2, 0)
    between = sum(one.relevance for one in all_of_them.memories) / 2
    some = await recall.recall(make_query("boiler", least_relevance=between))
    assert (len(some.ids), some.held_back) == (1, 1)


async def test_the_order_of_what_is_returned_is_that_of_everything(known: Any, embedder: Any) -> None:
    for number in range(12):
        await known.add(f"boiler note {number}", vector=axis(1.0, 0.3 * number), importance=0.1 * (number % 7))
    embedder.vectors["boiler note"] = axis(0.5, 0.0, math.sqrt(0.75))
    recall = known.recalling(embedder)
    everything = await recall.recall(make_query("boiler note"))
    rated = await recall.recall(make_query("boiler note", least_relevance=0.0))
    assert rated.ids == everything.ids
    middle = sorted(one.relevance for one in rated.memories)[5]
    some = await recall.recall(make_query("boiler note", least_relevance=middle))
    assert some.ids == [one.id for one in rated.memories if one.relevance >= middle]
    assert (len(some.ids), some.held_back) == (5, 5)


async def test_before_the_usual_cosine_is_found_nothing_is_held_back_and_the_answer_says_so(
    memories: Any, embedder: Any
) -> None:
    await memories.add("Tomatoes like sun", vector=FAR)
    result = await memories.recalling(embedder).recall(make_query("Write a haiku", least_relevance="certain"))
    assert (len(result.ids), result.held_back) == (1, 0)
    assert result.memories[0].relevance is None
    assert result.relevance_basis is RelevanceBasis.NOT_FOUND_YET


async def test_a_recall_that_is_newer_than_the_schema_holds_nothing_back(known: Any, embedder: Any) -> None:
    await known.pool.execute("ALTER TABLE memory_index_models DROP COLUMN usual_cosine")
    result = await known.recalling(embedder).recall(make_query("boiler", least_relevance="likely"))
    assert (len(result.ids), result.reason) == (2, None)
    assert result.relevance_basis is RelevanceBasis.NOT_FOUND_YET


async def test_without_the_dense_leg_words_alone_decide(known: Any, embedder: Any) -> None:
    """Whatever the reason; they hold back less."""
    embedder.vectors["the boiler or the sun at all, whatever comes to mind"] = OSError()
    result = await known.recalling(embedder).recall(
        make_query("the boiler or the sun at all, whatever comes to mind", least_relevance="certain")
    )
    assert result.reason is Degraded.EMBEDDER_FAILED
    assert result.relevance_basis is RelevanceBasis.WORDS
    assert (result.ids, result.held_back) == ([], 2)
    asked = await known.recalling(None).recall(make_query("boiler serviced", mode="lexical", least_relevance="certain"))
    assert (len(asked.ids), asked.relevance_basis) == (1, RelevanceBasis.WORDS)
    assert asked.memories[0].relevance > 0.8


async def test_a_sensitive_memory_has_a_relevance_by_its_words(known: Any, embedder: Any) -> None:
    """It has no vector, beside others that do."""
    secret = await known.add("The boiler's access code is 7731", sensitive=True)
    embedder.vectors["boiler access code"] = axis(0.0, 0.0, 0.0, 1.0)
    result = await known.recalling(embedder).recall(
        make_query("boiler access code", user_id="default", least_relevance="likely")
    )
    assert result.ids == [secret]
    row = {"dense_score": None, "lexical_score": result.memories[0].evidence.lexical_score}
    assert result.memories[0].relevance == result.relevance_scale.relevance_of(row)


@pytest.mark.parametrize(
    ("options", "asked"),
    [({"lexical": "ts_rank"}, {}), ({}, {"mode": "dense"}), ({}, {"sort_by": "recency"})],
    ids=["ts_rank", "dense alone", "by date"],
)
async def test_where_words_have_no_bm25_score_nothing_is_held_back(
    known: Any, embedder: Any, options: dict[str, Any], asked: dict[str, Any]
) -> None:
    recall = known.recalling(embedder, **options)
    result = await recall.recall(make_query("boiler", least_relevance="certain", **asked))
    everything = await recall.recall(make_query("boiler", **asked))
    assert result.ids == everything.ids
    assert result.relevance_basis is RelevanceBasis.NO_WORD_SCORES


async def test_rows_of_the_callers_table_are_held_back_as_memories_are(known: Any, embedder: Any) -> None:
    recall = known.recalling(embedder)
    best, other = (await recall.recall(make_query("boiler", least_relevance=0.0))).memories
    (row,) = await recall.recall_rows(make_query("boiler", least_relevance=best.relevance))
    assert row["relevance"] == best.relevance > other.relevance
    assert ["relevance" in one for one in await recall.recall_rows(make_query("boiler"))] == [False, False]


async def test_a_prompt_of_stop_words_has_no_words_to_count(known: Any, embedder: Any) -> None:
    embedder.vectors["and of the"] = axis(0.0, 0.0, 0.0, 1.0)
    result = await known.recalling(embedder).recall(make_query("and of the", least_relevance="likely"))
    assert (result.ids, result.held_back) == ([], 2)


async def test_a_query_without_a_memory_has_nothing_to_hold_back(memories: Any, embedder: Any) -> None:
    await memories.pool.execute("UPDATE memory_index_models SET usual_cosine = $1", USUAL)
    result = await memories.recalling(embedder).recall(make_query("boiler", least_relevance="likely"))
    assert (result.ids, result.held_back) == ([], 0)
