"""A recall never returns a row of somebody else in place of the row that it found, even where rows share an id.

`memory migrate` refuses such a table. But its key may be replaced afterwards, and no recall may give a memory away for
it. The rows that a recall must not return come first in the table, so that a look-up by the id alone finds them.
"""

from dataclasses import replace
from typing import Any

import pytest

from memory_recall import EVERYONE, Everyone, Filters, RecallQuery
from memory_recall.search.sql.plan import RecallPlan
from memory_recall.search.sql.readiness import read_readiness
from memory_recall.search.sql.statement import present_statement
from tests.integration.memory_recall.read_path.conftest import ChosenEmbedder, Memories
from tests.integration.memory_recall.read_path.links import enable_graph, link
from tests.integration.memory_recall.read_path.splitting import Fetched
from tests.integration.memory_recall.read_path.vectors import axis

ROWS = 12
TEXT = "boiler pressure"
_FAR = axis(0.0, 1.0)


@pytest.fixture
async def shared(memories: Memories, database: Any) -> Memories:
    """Users whose ids all begin with 1: Cy's memories are deleted, Bo's private or of another category, Ana's plain."""
    await memories.pool.execute("ALTER TABLE memories DROP CONSTRAINT memories_pkey, ADD PRIMARY KEY (user_id, id)")
    for number in range(1, ROWS + 1):
        near = axis(1.0, number / 10)
        rows: list[tuple[str, dict[str, Any]]] = [
            ("cy", {"deleted": True}),
            ("bo", {"sensitive": True} if number % 2 else {"category": "debts"}),
            ("ana", {"vector": near}),
        ]
        for user, given in rows:
            text = f"{TEXT} {number} of {user}" if user == "ana" else f"secret {number} of {user}"
            row = await memories.add(text, user_id=user, **given)
            await memories.pool.execute("UPDATE memories SET id = $2 WHERE id = $1 AND user_id = $3", row, number, user)
    await memories.pool.execute(
        "UPDATE memories SET embedding = $1::real[]::halfvec WHERE user_id = 'bo' AND NOT is_sensitive", _FAR
    )
    await enable_graph(database.dsn)
    async with memories.pool.acquire(), memories.pool.acquire():
        pass  # so that two connections are idle
    return memories


@pytest.fixture(params=["one statement", "three statements"])
def _either_form(request: pytest.FixtureRequest) -> None:
    if request.param == "three statements":
        request.getfixturevalue("fetched")


def _owners_and_texts(result: Any) -> set[tuple[str | None, str]]:
    return {(memory.owner, memory.content.split()[-1]) for memory in result.memories}


@pytest.mark.finding("database F0")
@pytest.mark.promise("recall-within-its-conditions")
@pytest.mark.usefixtures("_either_form")
@pytest.mark.parametrize("mode", ["hybrid", "dense", "lexical"])
@pytest.mark.parametrize("lexical", ["bm25", "ts_rank"])
async def test_a_recall_of_one_user_returns_all_of_that_users_rows_and_nobody_elses(
    shared: Memories, embedder: ChosenEmbedder, mode: Any, lexical: Any
) -> None:
    recall = shared.recalling(embedder, lexical=lexical)
    query = RecallQuery(TEXT, user_id="ana", mode=mode, limit=50)
    found = await recall.recall(query)
    assert (found.reason, len(found.memories), _owners_and_texts(found)) == (None, ROWS, {("ana", "ana")})
    rows = await recall.recall_rows(query)
    assert [(row["user_id"], row["deleted_at"], row["is_sensitive"]) for row in rows] == [("ana", None, False)] * ROWS


@pytest.mark.finding("database F0")
@pytest.mark.usefixtures("_either_form")
async def test_the_graph_leads_to_the_row_of_the_user_who_asks(shared: Memories, embedder: ChosenEmbedder) -> None:
    insert = "INSERT INTO memories (id, content, user_id, embedding) "
    await shared.pool.execute(f"{insert} SELECT 99, 'secret 99', name, NULL FROM unnest(ARRAY['aaron', 'zoe']) name")
    await shared.pool.execute(f"{insert} VALUES (99, 'the bridge', 'ana', $1::real[]::halfvec)", _FAR)
    nearer = f"{insert} SELECT number, 'more', 'ana', $1::real[]::halfvec FROM generate_series(200, 300) number"
    await shared.pool.execute(nearer, axis(1.0, 2.0))
    await link(shared.pool, {1: "bridge", 99: "bridge"})
    found = await shared.recalling(embedder).recall(RecallQuery(TEXT, user_id="ana", limit=200))
    assert {memory.owner for memory in found.memories} == {"ana"}
    (memory,) = (memory for memory in found.memories if memory.id == 99)
    assert (memory.content, memory.evidence.graph_score) == ("the bridge", 1.0)
    assert memory.evidence.dense_score == pytest.approx(0.0, abs=1e-3)


@pytest.mark.finding("database F0")
@pytest.mark.usefixtures("_either_form")
@pytest.mark.parametrize("mode", ["hybrid", "dense", "lexical"])
@pytest.mark.parametrize(
    ("query", "allowed"),
    [
        (RecallQuery(TEXT, user_id=EVERYONE, limit=100), {"ana", "bo"}),
        (RecallQuery(TEXT, user_id=Everyone(reader="ana"), limit=100), {"ana", "bo"}),
        (RecallQuery(TEXT, user_id=EVERYONE, filters=Filters(category="facts"), limit=100), {"ana"}),
        (RecallQuery(TEXT, user_id="ana", filters=Filters(category="facts"), limit=100), {"ana"}),
        (RecallQuery(TEXT, user_id="bo", filters=Filters(category="debts"), limit=100), {"bo"}),
    ],
)
async def test_filters_and_visibility_hold_for_the_row_that_is_returned(
    shared: Memories, embedder: ChosenEmbedder, mode: Any, query: RecallQuery, allowed: set[str]
) -> None:
    for text in (TEXT, "secret"):
        found = await shared.recalling(embedder).recall(replace(query, text=text, mode=mode))
        assert {memory.owner for memory in found.memories} <= allowed
        assert not any(memory.is_sensitive for memory in found.memories)


@pytest.mark.finding("database F0")
async def test_rows_that_a_replica_found_are_read_again_with_all_conditions(shared: Memories) -> None:
    async with shared.pool.acquire() as connection:
        readiness = await read_readiness(connection, "memories")
        plan = RecallPlan(RecallQuery(TEXT, user_id="ana"), readiness.table)
        sql, arguments = present_statement(plan, [{"id": number, "rank": 1.0} for number in range(1, ROWS + 1)])
        rows = await connection.fetch(sql, *arguments)
    assert [row["owner"] for row in rows] == ["ana"] * ROWS


@pytest.mark.finding("database F0")
async def test_a_memory_is_superseded_only_within_the_memories_of_its_user(
    shared: Memories, embedder: ChosenEmbedder
) -> None:
    """Bo's mark concerns Bo's memories, which have the ids of two of Ana's."""
    await shared.pool.execute("UPDATE memories SET is_sensitive = false WHERE user_id = 'bo'")
    await shared.pool.execute(
        "INSERT INTO memory_supersessions (run, action, id, superseded_by, text_hash, successor_hash)"
        " SELECT 1, 'SUPERSEDE', 2, 4, memory_index_text_hash(o.content), memory_index_text_hash(n.content)"
        " FROM memories o, memories n WHERE o.id = 2 AND n.id = 4 AND o.user_id = 'bo' AND n.user_id = 'bo'"
    )
    found = [
        (await shared.recalling(embedder).recall(RecallQuery(text, user_id=user, limit=50))).memories
        for user, text in (("ana", TEXT), ("bo", "secret"))
    ]
    assert [{memory.superseded_by for memory in one} for one in found] == [{None}, {None, 4}]


@pytest.mark.finding("database F0")
async def test_a_large_table_is_searched_with_the_same_conditions(
    shared: Memories, embedder: ChosenEmbedder, monkeypatch: pytest.MonkeyPatch, fetched: Fetched
) -> None:
    """In a large table the words' leg looks rows up another way."""
    monkeypatch.setattr("memory_recall.search.sql.bm25.SMALL_TABLE", 0)
    await shared.pool.execute("ANALYZE memories")
    for legs in (True, False):
        found = await shared.recalling(embedder, parallel_legs=legs).recall(RecallQuery(TEXT, user_id="ana", limit=50))
        assert (len(found.memories), _owners_and_texts(found)) == (ROWS, {("ana", "ana")})
    assert fetched.sessions
