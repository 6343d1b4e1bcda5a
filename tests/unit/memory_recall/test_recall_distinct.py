"""How many places of a distinct recall are compared."""

import pytest

from memory_recall.search.query import RecallQuery
from memory_recall.search.sql.distinct import compared_places
from memory_recall.search.sql.visibility import EVERYONE


@pytest.mark.parametrize(("limit", "offset", "places"), [(5, 0, 50), (10, 10, 80), (30, 0, 120), (500, 0, 200)])
def test_from_50_to_200_places_are_compared(limit: int, offset: int, places: int) -> None:
    query = RecallQuery("x", user_id=EVERYONE, limit=limit, offset=offset, distinct=True)
    assert compared_places(query) == places
