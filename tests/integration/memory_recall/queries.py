"""Queries of tests that do not ask whose memories are searched."""

from typing import Any

from memory_recall.search.query import RecallQuery
from memory_recall.search.sql.visibility import EVERYONE


def make_query(text: str, **options: Any) -> RecallQuery:
    """A query over everybody's memories, unless a user is named."""
    return RecallQuery(text, **{"user_id": EVERYONE, **options})
