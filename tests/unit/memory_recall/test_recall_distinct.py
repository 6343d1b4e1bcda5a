"""How many places of a distinct recall are compared, and who refuses one."""

import sqlite3
from contextlib import closing

import pytest

from memory_recall.contrib.sqlite import SqliteRecall
from memory_recall.errors import InvalidInput
from memory_recall.search.query import RecallQuery
from memory_recall.search.sql.distinct import compared_places
from memory_recall.search.sql.visibility import EVERYONE
from tests.support.sqlite_schema import create_schema


@pytest.mark.parametrize(("limit", "offset", "places"), [(5, 0, 50), (10, 10, 80), (30, 0, 120), (500, 0, 200)])
def test_from_50_to_200_places_are_compared(limit: int, offset: int, places: int) -> None:
    query = RecallQuery("x", user_id=EVERYONE, limit=limit, offset=offset, distinct=True)
    assert compared_places(query) == places


def test_a_local_file_refuses_a_distinct_recall() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        create_schema(connection)
        with pytest.raises(InvalidInput, match="no vectors"):
            SqliteRecall(connection).recall(RecallQuery("x", user_id=EVERYONE, distinct=True))
