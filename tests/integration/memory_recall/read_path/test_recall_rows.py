"""Rows in the form of the caller's own table, for an API that ranks further by itself."""

from typing import Any

import pytest

from memory_recall import EVERYONE, Everyone, Filters, InvalidInput, RecallQuery, SchemaUnsupported
from tests.integration.memory_recall.read_path.vectors import axis

EVIDENCE = {"lexical_rank", "lexical_score", "dense_rank", "dense_score"}
DERIVED = {"embedding", "search_vector"}


async def columns_of(memories: Any) -> set[str]:
    found = await memories.pool.fetch(
        "SELECT attname FROM pg_attribute WHERE attrelid = 'memories'::regclass AND attnum > 0 AND NOT attisdropped"
    )
    return {row["attname"] for row in found}


async def test_a_row_has_the_table_s_own_columns_and_the_scores_in_the_order_of_the_recall(
    filled: Any, embedder: Any
) -> None:
    """Vectors and search vectors apart, and in both ways of executing a recall."""
    query = RecallQuery("zfs scrub of the pool", user_id="default", limit=20)
    recall = filled.recalling(embedder)
    result, rows = await recall.recall(query), await recall.recall_rows(query)
    assert [(row["id"], row["rank"], row["dense_score"]) for row in rows] == [
        (memory.id, memory.rank, memory.evidence.dense_score) for memory in result.memories
    ]
    assert set(rows[0]) == (await columns_of(filled) - DERIVED) | EVIDENCE | {"rank"}
    assert {(row["user_id"], row["deleted_at"]) for row in rows} == {("default", None)}


async def test_columns_of_any_name_and_those_that_the_statement_uses_itself_come_as_they_are(
    memories: Any, embedder: Any
) -> None:
    """Quoted, long, in another alphabet, or called as a part of our statement is; only scores replace a column."""
    names = ['Own "col"', "place", "open", "active", "own_0", "owner", "ключ", "x" * 63, "rank"]
    for name in names:
        column = '"' + name.replace('"', '""') + '"'
        await memories.pool.execute(f"ALTER TABLE memories ADD COLUMN {column} text DEFAULT 'mine'")
    await memories.add("zigbee dongle", vector=axis(1.0))
    (row,) = await memories.recalling(embedder).recall_rows(RecallQuery("zigbee", user_id=EVERYONE))
    assert {name: row[name] for name in names if name != "rank"} == dict.fromkeys(names[:-1], "mine")
    assert row["rank"] > 0


async def test_a_sensitive_row_is_masked_in_every_column_that_may_repeat_its_text(memories: Any, embedder: Any) -> None:
    """By type, whatever the column is called; what an API needs to rank and to link by stays."""
    for change in (
        "ADD COLUMN title text", "ADD COLUMN raw bytea", "ADD COLUMN parts text[]", "ADD COLUMN extra jsonb",
        "ADD COLUMN pinned boolean", "ADD COLUMN parent integer",
    ):  # fmt: skip
        await memories.pool.execute(f"ALTER TABLE memories {change}")
    own = await memories.add(
        "the PIN is kestrel", sensitive=True, user_id="ana", tags="bank", expanded_keywords="kestrel"
    )
    await memories.pool.execute(
        "UPDATE memories SET title = 'PIN kestrel', raw = 'kestrel', parts = '{kestrel}',"
        ' extra = \'{"pin": "kestrel"}\', pinned = true, parent = 7'
    )
    await memories.add("the PIN is osprey", sensitive=True, user_id="bo")
    (row,) = await memories.recalling(embedder).recall_rows(RecallQuery("the PIN", user_id=Everyone(reader="ana")))
    assert row["content"] == f"[SENSITIVE - use secret_get(id={own})]"
    assert (row["is_sensitive"], row["pinned"], row["parent"], row["user_id"]) == (True, True, 7, "ana")
    assert (row["tags"], row["category"]) == ("bank", "facts")
    assert {row[name] for name in ("title", "raw", "extra", "parts", "expanded_keywords")} == {None}
    assert "kestrel" not in str(row)


async def test_a_filter_and_a_wrong_query_are_treated_as_by_recall(memories: Any, embedder: Any) -> None:
    await memories.add("zigbee dongle", category="ops")
    kept = await memories.add("zigbee dongle")
    recall = memories.recalling(embedder)
    rows = await recall.recall_rows(RecallQuery("zigbee", user_id=EVERYONE, filters=Filters(category="facts")))
    assert [row["id"] for row in rows] == [kept]
    with pytest.raises(InvalidInput):
        await recall.recall_rows("zigbee")
    assert await recall.recall_rows(RecallQuery("nothing of it", user_id=EVERYONE)) == []


@pytest.mark.parametrize("mode", ["hybrid", "lexical"])
@pytest.mark.parametrize("sort_by", ["relevance", "importance", "recency"])
async def test_a_table_needs_neither_tags_nor_category_importance_dates_or_users(
    memories: Any, embedder: Any, mode: Any, sort_by: Any
) -> None:
    """An own table of memories may lack each of them; what is missing is None, and filters by it are refused."""
    await memories.pool.execute(
        "ALTER TABLE memories DROP COLUMN search_vector, DROP COLUMN tags, DROP COLUMN category,"
        " DROP COLUMN importance, DROP COLUMN created_at, DROP COLUMN updated_at, DROP COLUMN user_id"
    )
    recall = memories.recalling(embedder)
    with pytest.raises(SchemaUnsupported) as refused:
        await recall.recall(RecallQuery("zigbee", user_id=EVERYONE))
    statement, _, _ = refused.value.remedy.partition(";")
    await memories.pool.execute(statement)
    await memories.pool.execute("INSERT INTO memories (content) VALUES ('zigbee dongle')")
    query = RecallQuery("zigbee", user_id=EVERYONE, mode=mode, sort_by=sort_by)
    (memory,) = (await recall.recall(query)).memories
    assert (memory.content, memory.tags, memory.importance, memory.created_at) == ("zigbee dongle", None, None, None)
    assert len((await recall.recall(RecallQuery("", user_id=EVERYONE, sort_by=sort_by))).memories) == 1
    with pytest.raises(InvalidInput):
        await recall.recall(RecallQuery("zigbee", user_id=EVERYONE, filters=Filters(tags=("a",))))
