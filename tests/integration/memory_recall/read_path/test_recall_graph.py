"""The graph leg finds what neither other leg has, and nothing that the reader may not find."""

import json
from dataclasses import replace
from typing import Any

import asyncpg
import httpx
import pytest
from fastapi import FastAPI

from memory_recall import EVERYONE, Everyone, Filters, Fusion, RecallQuery, SortBy
from memory_recall.contrib.fastapi import create_recall_router
from memory_recall.contrib.query_expansion import QueryExpansion
from memory_recall.postgres.connection import DsnText, create_pool
from memory_recall.search.hybrid_recall import HybridRecall
from memory_recall.search.options import RecallOptions
from memory_recall.search.result import Expansion, RecallResult
from tests.integration.memory_recall.poolers import pgbouncer
from tests.integration.memory_recall.read_path.conftest import LONG_BUDGET
from tests.integration.memory_recall.read_path.links import enable_graph, link
from tests.integration.memory_recall.read_path.rows import fill
from tests.integration.memory_recall.read_path.splitting import Fetched
from tests.integration.memory_recall.read_path.test_curation import supersede
from tests.integration.memory_recall.read_path.vectors import axis

TEXT = "zigbee dongle"
QUERY = RecallQuery(TEXT, user_id="default", limit=50)
BEYOND = axis(1.0, 7.0)  # farther away than the fifty nearest of `fill`


@pytest.fixture
async def graph(memories: Any, database: Any) -> Any:
    """The sixty rows of `fill` with an empty concept graph."""
    await fill(memories)
    await enable_graph(database.dsn)
    async with memories.pool.acquire(), memories.pool.acquire():
        pass  # so that two connections are idle
    return memories


@pytest.fixture
async def first(graph: Any, embedder: Any) -> int:
    """The memory that a recall without the graph puts first."""
    result = await graph.recalling(embedder).recall(QUERY)
    return int(result.ids[0])


async def both_ways(graph: Any, embedder: Any, query: RecallQuery = QUERY) -> tuple[RecallResult, RecallResult]:
    """The results with and without the graph leg."""
    with_graph, without = (graph.recalling(embedder, concept_graph=used) for used in (True, False))
    return await with_graph.recall(query), await without.recall(query)


@pytest.fixture(params=["one statement", "three statements"])
def _either_form(request: pytest.FixtureRequest) -> None:
    if request.param == "three statements":
        request.getfixturevalue("fetched")


@pytest.mark.usefixtures("_either_form")
async def test_a_memory_that_only_the_graph_can_reach_is_found_and_says_so(
    graph: Any, embedder: Any, first: int
) -> None:
    """The first five keep places and scores, and no score exceeds the one before it."""
    wanted = await graph.add("the bridge", vector=BEYOND)
    await link(graph.pool, {first: "bridge mast", wanted: "bridge"})
    found, plain = await both_ways(graph, embedder)
    assert wanted not in plain.ids
    (memory,) = (one for one in found.memories if one.id == wanted)
    assert (memory.evidence.lexical_rank, memory.evidence.dense_rank) == (None, None)
    assert memory.evidence.graph_score == 1.0
    assert memory.evidence.dense_score == pytest.approx(1 / 50**0.5, abs=0.001)
    assert 5 <= found.ids.index(wanted) < 25
    assert [(one.id, one.rank) for one in found.memories[:5]] == [(one.id, one.rank) for one in plain.memories[:5]]
    ranks = [one.rank for one in found.memories]
    assert ranks == sorted(ranks, reverse=True)
    assert {one.evidence.graph_score for one in found.memories if one.id != wanted} == {None}
    assert {one.evidence.graph_score for one in plain.memories} == {None}


async def test_both_forms_of_a_recall_give_the_same_answer_with_the_graph(
    graph: Any, embedder: Any, first: int, fetched: Fetched
) -> None:
    """Candidates of the other legs are lifted, too, and a reached memory has the score that its words have."""
    await graph.pool.execute("INSERT INTO memories (content) SELECT 'zigbee zigbee' FROM generate_series(1, 120)")
    wanted = await graph.add(f"the bridge and the zigbee {'and much else ' * 30}", vector=BEYOND)
    plain = await graph.recalling(embedder, parallel_legs=False, concept_graph=False).recall(QUERY)
    await link(graph.pool, {first: "bridge mast", plain.ids[20]: "mast", wanted: "bridge"})
    fetched.sessions.clear()
    one = await graph.recalling(embedder, parallel_legs=False).recall(QUERY)
    assert len(fetched.sessions) == 1
    fetched.sessions.clear()
    two = await graph.recalling(embedder).recall(QUERY)
    assert fetched.split
    assert [(row.id, row.evidence) for row in two.memories] == [(row.id, row.evidence) for row in one.memories]
    assert [row.rank for row in two.memories] == pytest.approx([row.rank for row in one.memories])
    assert one.ids.index(plain.ids[20]) < 20
    (reached,) = (row.evidence for row in one.memories if row.id == wanted)
    by_words = await graph.recalling(embedder).recall(replace(QUERY, mode="lexical", limit=500))
    assert reached.lexical_rank is None
    assert [row.evidence.lexical_score for row in by_words.memories if row.id == wanted] == [reached.lexical_score]


class _Talkative:
    """A language model that names sixteen words which no memory has."""

    async def complete(self, _instruction: str, _text: str, /, *, most_tokens: int) -> str:
        assert most_tokens > 0
        return ", ".join(f"unheard{number}" for number in range(16))


@pytest.mark.usefixtures("_either_form")
async def test_further_words_make_no_long_query_of_a_short_one(graph: Any, embedder: Any, first: int) -> None:
    """A long query has no graph leg, and what a language model adds is not part of the query."""
    wanted = await graph.add("the bridge", vector=BEYOND)
    await link(graph.pool, {first: "bridge mast", wanted: "bridge"})
    recall = QueryExpansion(graph.recalling(embedder), _Talkative(), phrases=16, weight=1.0, budget=LONG_BUDGET / 2)
    found = await recall.recall(replace(QUERY, expand=True))
    assert found.expansion is Expansion.DONE
    assert wanted in found.ids


@pytest.mark.usefixtures("_either_form")
async def test_the_graph_leads_to_no_row_that_the_filters_or_the_reader_exclude(
    graph: Any, embedder: Any, first: int
) -> None:
    """Not even where a link of another user's row has the reader's own concept, which the worker never writes."""
    wanted = await graph.add("the bridge", vector=BEYOND, category="ops")
    foreign = await graph.add("the bridge", vector=BEYOND, user_id="ben")
    await link(graph.pool, {first: "bridge", wanted: "bridge", foreign: "bridge"})
    assert foreign not in (await both_ways(graph, embedder, RecallQuery(TEXT, user_id=EVERYONE, limit=50)))[0].ids
    await graph.pool.execute(
        "INSERT INTO memory_concepts SELECT $1, concept FROM memory_concepts WHERE memory_id = $2", foreign, wanted
    )
    reached = [
        set((await both_ways(graph, embedder, RecallQuery(TEXT, limit=50, **given)))[0].ids) & {wanted, foreign}
        for given in (
            {"user_id": EVERYONE},
            {"user_id": Everyone(reader="cleo")},
            {"user_id": "default"},
            {"user_id": "default", "filters": Filters(category="facts")},
        )
    ]
    assert reached == [{wanted, foreign}, {wanted, foreign}, {wanted}, set()]


async def test_a_filter_is_applied_before_the_best_fifty_are_taken(graph: Any, embedder: Any, first: int) -> None:
    """Sixty rows that receive more do not displace the one that the filter lets through, and do not set its scale."""
    await graph.pool.execute("INSERT INTO memories (content) SELECT 'nothing of it' FROM generate_series(1, 900)")
    other = [await graph.add("the bridge", vector=BEYOND, category="ops") for _ in range(60)]
    wanted = await graph.add("the bridge", vector=BEYOND)
    await link(graph.pool, {first: "bridge mast", **dict.fromkeys(other, "bridge mast"), wanted: "bridge"})
    query = RecallQuery(TEXT, user_id="default", limit=50, filters=Filters(category="facts"))
    found = await graph.recalling(embedder).recall(query)
    assert [one.evidence.graph_score for one in found.memories if one.id == wanted] == [1.0]
    unfiltered = await graph.recalling(embedder).recall(QUERY)
    reached = {one.id for one in unfiltered.memories if one.evidence.graph_score is not None}
    assert reached
    assert wanted not in reached


async def test_a_row_that_becomes_sensitive_is_no_longer_reached(graph: Any, embedder: Any, first: int) -> None:
    """Not even by its owner, since a sensitive row has no concepts; and from such a row the graph leads nowhere."""
    wanted = await graph.add("the bridge", vector=BEYOND)
    await link(graph.pool, {first: "bridge", wanted: "bridge"})
    assert wanted in (await both_ways(graph, embedder))[0].ids
    await graph.pool.execute("UPDATE memories SET is_sensitive = true, embedding = NULL WHERE id = $1", wanted)
    assert wanted not in (await both_ways(graph, embedder))[0].ids
    with pytest.raises(asyncpg.CheckViolationError):
        await link(graph.pool, {wanted: "bridge"})


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE memory_graph SET filled_at = NULL",
        "DELETE FROM memory_graph",
        "REVOKE SELECT ON memory_graph FROM current_user",
        "REVOKE SELECT ON memory_concepts FROM current_user",
        "DROP TABLE memory_concepts",
        "DROP INDEX memory_concepts_by_concept",
        "ALTER TABLE memory_concepts DISABLE TRIGGER USER",
        "UPDATE memory_graph SET extraction = extraction + 1",
    ],
)
async def test_a_graph_that_is_unfilled_unreadable_or_broken_takes_no_part(
    graph: Any, embedder: Any, first: int, change: str
) -> None:
    """A recall then answers as without it."""
    wanted = await graph.add("the bridge", vector=BEYOND)
    await link(graph.pool, {first: "bridge", wanted: "bridge"})
    await graph.pool.execute(change)
    found, plain = await both_ways(graph, embedder)
    assert (found.reason, found.memories) == (None, plain.memories)


@pytest.mark.usefixtures("_either_form")
async def test_a_graph_that_is_dropped_meanwhile_costs_the_answer_nothing_else(
    graph: Any, embedder: Any, first: int
) -> None:
    """The recall that still knows of it has both other legs, and the next one knows that it is gone."""
    wanted = await graph.add("the bridge", vector=BEYOND)
    await link(graph.pool, {first: "bridge", wanted: "bridge"})
    recall = graph.recalling(embedder)
    assert wanted in (await recall.recall(QUERY)).ids
    await graph.pool.execute("DROP TABLE memory_concepts")
    found, again = await recall.recall(QUERY), await recall.recall(QUERY)
    plain = await graph.recalling(embedder, concept_graph=False).recall(QUERY)
    assert (found.reason, found.ids) == (again.reason, again.ids) == (None, plain.ids)
    assert not (await recall._readiness.get()).concept_graph


@pytest.mark.parametrize(
    ("options", "recalling"),
    [
        ({"mode": "dense"}, {}),
        ({"mode": "lexical"}, {}),
        ({"sort_by": SortBy.IMPORTANCE}, {}),
        ({"sort_by": SortBy.RECENCY}, {}),
        ({"fusion": Fusion(method="rrf")}, {}),
        ({}, {"lexical": "ts_rank"}),
        ({}, {"embedder": None}),
        ({"text": f"{TEXT} {' '.join(f'word{number}' for number in range(60))}"}, {}),
    ],
)
async def test_other_orders_and_modes_and_prompts_have_no_graph_leg(
    graph: Any, embedder: Any, first: int, options: Any, recalling: Any
) -> None:
    """Nor has a recall whose dense leg took no part, or whose query says more than a memory can match."""
    wanted = await graph.add("the bridge", vector=BEYOND)
    every = await graph.pool.fetch("SELECT id FROM memories WHERE id <> $1 ORDER BY id LIMIT 4", wanted)
    await link(graph.pool, {**{row["id"]: "bridge" for row in every}, first: "bridge", wanted: "bridge"})
    assert wanted in (await both_ways(graph, embedder))[0].ids
    query = RecallQuery(**{"text": TEXT, "user_id": "default", "limit": 50, **options})
    result = await graph.recalling(**{"embedder": embedder, **recalling}).recall(query)
    assert result.ids
    assert {one.evidence.graph_score for one in result.memories} == {None}
    if options.get("sort_by") is not SortBy.RECENCY:
        assert wanted not in result.ids


@pytest.mark.usefixtures("_either_form")
async def test_a_memory_that_the_graph_reached_stands_before_the_one_that_it_supersedes(
    graph: Any, embedder: Any, first: int
) -> None:
    """Although the superseded one is among the five that keep their places."""
    newer = await graph.add("the bridge", vector=BEYOND, importance=0.0)
    await link(graph.pool, {first: "bridge", newer: "bridge"})
    await supersede(graph, first, newer)
    found = await graph.recalling(embedder).recall(QUERY)
    assert [(one.id, one.superseded_by) for one in found.memories[:2]] == [(newer, None), (first, newer)]
    ranks = [one.rank for one in found.memories]
    assert ranks == sorted(ranks, reverse=True)


async def test_a_read_only_session_and_a_transaction_pooler_serve_the_graph(
    graph: Any, database: Any, embedder: Any, first: int
) -> None:
    """As on a replica: the statement writes nothing and needs no state of a session."""
    wanted = await graph.add("the bridge", vector=BEYOND)
    await link(graph.pool, {first: "bridge", wanted: "bridge"})
    async with pgbouncer(database, mode="transaction") as pooled:
        read_only = await asyncpg.create_pool(
            database.dsn, min_size=1, max_size=1, server_settings={"default_transaction_read_only": "on"}
        )
        behind_pooler = await create_pool(DsnText(pooled), min_size=1, max_size=4, statement_cache_size=0)
        for pool in (read_only, behind_pooler):
            recall = HybridRecall(pool, embedder, RecallOptions(time_budget=LONG_BUDGET))
            assert wanted in (await recall.recall(QUERY)).ids
            await recall.close()
            await pool.close()


async def test_a_pool_that_converts_json_for_its_api_serves_recalls_and_the_graph(
    graph: Any, database: Any, embedder: Any, first: int
) -> None:
    """An API has asyncpg turn its objects into JSON, which would turn JSON that is a text into a JSON string."""

    async def convert_json(connection: Any) -> None:
        for kind in ("json", "jsonb"):
            await connection.set_type_codec(kind, encoder=json.dumps, decoder=json.loads, schema="pg_catalog")

    wanted = await graph.add("the bridge", vector=BEYOND)
    await link(graph.pool, {first: "bridge", wanted: "bridge"})
    pool = await create_pool(DsnText(database.dsn), init=convert_json)
    recall = HybridRecall(pool, embedder, RecallOptions(time_budget=LONG_BUDGET))
    assert wanted in (await recall.recall(QUERY)).ids
    await recall.close()
    await pool.close()


async def test_rows_and_explained_recalls_tell_of_the_graph(graph: Any, embedder: Any, first: int) -> None:
    """Only a row that it reached has the score; its time is that of the leg alone."""
    wanted = await graph.add("the bridge", vector=BEYOND)
    await link(graph.pool, {first: "bridge", wanted: "bridge"})
    recall = graph.recalling(embedder)
    rows = await recall.recall_rows(QUERY)
    assert {row["id"]: row["graph_score"] for row in rows if "graph_score" in row} == {wanted: 1.0}
    legs = (await recall.recall(RecallQuery(TEXT, user_id="default", explain=True))).timings.legs
    assert 0 < legs["graph"] < legs["execution"]


async def test_the_route_says_which_memories_the_graph_reached(graph: Any, embedder: Any, first: int) -> None:
    """By a further field, which no other memory has."""
    wanted = await graph.add("the bridge", vector=BEYOND)
    await link(graph.pool, {first: "bridge", wanted: "bridge"})
    app = FastAPI()
    app.include_router(create_recall_router(graph.recalling(embedder), current_user=lambda: "default"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api") as http:
        answer = (await http.post("/api/memories/recall", json={"context": TEXT, "limit": 50})).json()
    assert {one["id"]: one["graph_score"] for one in answer["memories"] if "graph_score" in one} == {wanted: 1.0}
