"""A page within a number of tokens: which memories it holds, in which order, and what is left out."""

import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from memory_recall.contrib.second_stage import SecondStage
from memory_recall.contrib.sqlite import SqliteRecall
from memory_recall.search.query import RecallQuery
from memory_recall.search.result import RecalledMemory
from memory_recall.search.sql.visibility import EVERYONE
from memory_recall.search.token_budget import content_tokens, places_that_fit
from tests.support.sqlite_schema import create_schema
from tests.unit.memory_recall.fake_recall import FakeRecall, memory
from tests.unit.memory_recall.test_second_stage import FakeReranker

PAGE = [memory(number, "x" * length) for number, length in enumerate((40, 80, 20, 8))]  # 10, 20, 5 and 2 tokens


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("äöü", 2), ("語", 1)])
def test_a_token_is_four_bytes_of_utf_8(text: str, tokens: int) -> None:
    assert content_tokens(text) == tokens


@pytest.mark.parametrize(
    ("most", "places"), [(37, [0, 1, 2, 3]), (36, [0, 1, 2]), (17, [0, 2, 3]), (9, [2, 3]), (1, [])]
)
def test_memories_are_taken_in_their_order_each_if_it_still_fits(most: int, places: list[int]) -> None:
    assert places_that_fit(PAGE, most) == places


def test_the_most_relevant_are_taken_first_and_the_page_keeps_its_order() -> None:
    rated: list[RecalledMemory] = [
        replace(one, relevance=relevance) for one, relevance in zip(PAGE, (0.2, 0.3, 0.9, 0.8), strict=True)
    ]
    assert places_that_fit(rated, 27) == [1, 2, 3]


async def test_the_result_says_how_many_did_not_fit_and_rows_are_left_out_alike() -> None:
    query = RecallQuery("x", user_id=EVERYONE, max_tokens=17)
    result = await FakeRecall(PAGE).recall(query)
    assert (result.ids, result.left_out) == ([0, 2, 3], 1)
    assert [row["id"] for row in await FakeRecall(PAGE).recall_rows(query)] == [0, 2, 3]


async def test_tokens_are_counted_after_the_second_stage() -> None:
    """Which puts the longest first, of which one fits; in the order of the fusion the short ones would."""
    found = [memory(1, "x" * 4), memory(2, "x" * 8), memory(3, "x" * 40)]
    recall = SecondStage(FakeRecall(found), FakeReranker())
    result = await recall.recall(RecallQuery("x", user_id=EVERYONE, max_tokens=10))
    assert (result.ids, result.left_out) == ([3], 2)


def test_a_local_file_keeps_the_tokens_too() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        create_schema(connection)
        for content in ("zigbee " + "x" * 60, "zigbee dongle"):
            connection.execute("INSERT INTO memories (content, importance) VALUES (?, 0.5)", (content,))
        result = SqliteRecall(connection).recall(RecallQuery("zigbee", user_id=EVERYONE, max_tokens=5))
    assert ([one.content for one in result.memories], result.left_out) == (["zigbee dongle"], 1)
