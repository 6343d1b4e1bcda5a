"""Hybrid recall against a real Postgres: what it finds, in which order, and what never leaves the database."""

import math
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import asyncpg
import pytest

from memory_recall.contrib.dates import find_period
from memory_recall.errors import InvalidInput
from memory_recall.search.fusion import DENSE_FLOORS, Fusion
from memory_recall.search.hybrid_recall import HybridRecall
from memory_recall.search.period import Period
from memory_recall.search.sql.filters import Filters
from tests.integration.memory_recall.queries import make_query
from tests.integration.memory_recall.read_path.vectors import axis

NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def test_a_memory_without_a_term_in_common_is_found_by_its_vector(memories: Any, embedder: Any) -> None:
    """This is what the dense leg is for."""
    wanted = await memories.add("The backup job runs at night", vector=axis(1.0, 0.1))
    await memories.add("Tomatoes like sun", vector=axis(0.0, 1.0))
    result = await memories.recalling(embedder).recall(make_query("nightly copies", limit=1))
    assert result.ids == [wanted]
    assert not result.degraded
    assert result.memories[0].evidence.dense_rank == 1


async def test_a_memory_without_a_vector_is_still_found_by_its_terms(memories: Any, embedder: Any) -> None:
    """A row that waits for its embedding does not disappear from hybrid answers."""
    await memories.add("Tomatoes like sun", vector=axis(1.0))
    pending = await memories.add("The zigbee dongle hangs on usb3 noise")
    result = await memories.recalling(embedder).recall(make_query("zigbee dongle", limit=2))
    assert pending in result.ids


@pytest.mark.parametrize("before", ["", "whether the neighbours ever bought another lawnmower or perhaps rented yours"])
async def test_a_long_query_finds_memories_that_lack_some_of_its_terms(
    memories: Any, embedder: Any, before: str
) -> None:
    """Three rare terms are the most that a query demands; a short one demands all of its own."""
    for number in range(20):
        await memories.add(f"note {number}", vector=axis(0.0, 1.0))
    wanted = await memories.add("scrub zfs", vector=axis(1.0))
    recall = memories.recalling(embedder, fusion=Fusion(alpha=0.0, importance=False))
    best = (await recall.recall(make_query(f"{before} scrub zfs", limit=1))).memories[0]
    assert best.id == wanted
    reach = 3 * math.log(1 + 21.5 / 0.5) if before else 2 * math.log(1 + 20.5 / 1.5)
    assert best.rank == pytest.approx((best.evidence.lexical_score / reach) ** 2)


async def test_deleted_memories_are_never_recalled(memories: Any, embedder: Any) -> None:
    """Neither by the lexical nor by the dense leg nor by date."""
    gone = await memories.add("the wireguard tunnel port", deleted=True)
    kept = await memories.add("the wireguard tunnel key", vector=axis(1.0))
    recall = memories.recalling(embedder)
    for mode, sort_by in product(("hybrid", "lexical", "dense"), ("relevance", "importance", "recency")):
        result = await recall.recall(make_query("wireguard tunnel port", mode=mode, sort_by=sort_by))
        assert gone not in result.ids, f"{mode}, by {sort_by}"
        assert result.ids == [kept], f"{mode}, by {sort_by}"


async def test_filters_hold_for_both_legs(memories: Any, embedder: Any) -> None:
    """Category, tags, user and time each exclude a row that both legs would find."""
    options = {"vector": axis(1.0), "category": "ops", "tags": "disk, zfs", "user_id": "ana", "created_at": NOW}
    wanted = await memories.add("scrub the zfs pool", **options)
    for change in (
        {"category": "garden"},
        {"tags": "zfsx"},
        {"user_id": "bo"},
        {"created_at": NOW - timedelta(days=9)},
        {"created_at": NOW + timedelta(days=9)},
    ):
        await memories.add("scrub the zfs pool", **{**options, **change})
    filters = Filters(
        category="ops",
        tags=("zfs",),
        since=NOW - timedelta(days=1),
        until=NOW + timedelta(days=1),
    )
    result = await memories.recalling(embedder).recall(make_query("scrub zfs pool", user_id="ana", filters=filters))
    assert result.ids == [wanted]


async def test_each_page_begins_where_the_previous_one_ended(memories: Any, embedder: Any) -> None:
    """Limit and offset cut one order into pages without gap or repetition."""
    for number in range(12):
        await memories.add(f"kettle note {number}", vector=axis(1.0, number / 10))
    recall = memories.recalling(embedder)
    whole = (await recall.recall(make_query("kettle note", limit=12))).ids
    pages = [(await recall.recall(make_query("kettle note", limit=5, offset=offset))).ids for offset in (0, 5, 10)]
    assert [one for page in pages for one in page] == whole
    assert len(set(whole)) == 12


@pytest.mark.parametrize(("limit", "offset"), [(0, 0), (10_001, 0), (10, -1)])
def test_a_page_out_of_range_is_refused(limit: int, offset: int) -> None:
    """The message names the argument and its range."""
    with pytest.raises(InvalidInput, match=r"`(limit|offset)` cannot be used: input should be (greater|less)"):
        make_query("x", limit=limit, offset=offset)


async def test_the_largest_limit_gives_what_both_legs_find(memories: Any, embedder: Any) -> None:
    """A limit is a bound: an order by both legs has no more rows than they return."""
    for number in range(60):
        await memories.add(f"kettle note {number}" if number < 30 else "other", vector=axis(1.0, number / 10))
    found = await memories.recalling(embedder).recall(make_query("kettle note", limit=10_000))
    assert len(set(found.ids)) == 60
    assert not found.degraded


async def test_the_default_fusion_is_that_of_the_model_that_embedded_the_query(
    memories: Any, embedder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fusion that the caller gives is taken as it is, whatever the model."""
    monkeypatch.setattr("memory_recall.search.fusion.DENSE_FLOORS", {**DENSE_FLOORS, "tiny": 0.5})
    await memories.add("kettle on the stove", vector=axis(1.0, 1.0))
    await memories.add("something else", vector=axis(1.0, 0.1))

    async def scores(**options: Any) -> list[float]:
        result = await memories.recalling(embedder, **options).recall(make_query("kettle", limit=2))
        return [memory.rank for memory in result.memories]

    assert await scores() == await scores(fusion=Fusion(dense_floor=0.5))
    assert await scores() != await scores(fusion=Fusion())


@pytest.mark.parametrize("farthest", [0.0, 0.74, 0.76])
async def test_a_nearer_memory_comes_first_although_its_cosine_is_below_the_floor_of_the_model(
    farthest: float, memories: Any, embedder: Any
) -> None:
    """Nothing that a user has may be near, and the score of the dense leg is from 0 to 1 all the same."""
    near = await memories.add("the one", vector=axis(0.745, (1 - 0.745**2) ** 0.5))
    far = await memories.add("the other", vector=axis(farthest, (1 - farthest**2) ** 0.5))
    result = await memories.recalling(embedder).recall(make_query("unrelated", fusion=Fusion(dense_floor=0.75)))
    assert result.ids == ([far, near] if farthest > 0.745 else [near, far])
    assert all(0 <= memory.rank <= 1 for memory in result.memories)


async def test_importance_multiplies_relevance_after_fusion(memories: Any, embedder: Any) -> None:
    """Of two memories with equal scores in both legs, the important one comes first."""
    plain = await memories.add("renew the certificate", vector=axis(1.0), importance=0.1)
    vital = await memories.add("renew the certificate", vector=axis(1.0), importance=0.9)
    await memories.add("feed the cat", vector=axis(0.0, 1.0))
    recall = memories.recalling(embedder)
    assert (await recall.recall(make_query("renew certificate", limit=2))).ids == [vital, plain]
    assert (await recall.recall(make_query("renew certificate", limit=2, sort_by="importance"))).ids == [vital, plain]
    bare = memories.recalling(embedder, fusion=Fusion(importance=False))
    assert (await bare.recall(make_query("renew certificate", limit=2))).ids == [plain, vital]


async def test_sorting_by_recency_uses_the_date_alone(memories: Any, embedder: Any) -> None:
    """The embedder is not called, and a better match does not come before a newer one."""
    days = [3, 1, 2]
    ids = {
        day: await memories.add(f"plumber {'plumber ' * day}", created_at=NOW - timedelta(days=day), vector=axis(1.0))
        for day in days
    }
    result = await memories.recalling(embedder).recall(make_query("plumber", sort_by="recency"))
    assert result.ids == [ids[1], ids[2], ids[3]]
    assert embedder.calls == []
    assert not result.degraded


@pytest.mark.parametrize("mode", ["hybrid", "lexical", "dense"])
async def test_the_time_that_a_query_names_decides_between_equal_matches(
    memories: Any, embedder: Any, mode: str
) -> None:
    """It is a boost and no filter: memories near the time come next, then those far from it or without a date."""
    when = {"inside": -3, "just after": 10, "far off": 200}
    rows = {
        name: await memories.add("the boiler was serviced", vector=axis(1.0), created_at=NOW + timedelta(days=days))
        for name, days in reversed(when.items())
    }
    undated = await memories.add("the boiler was serviced", vector=axis(1.0), created_at=NOW)
    await memories.pool.execute("ALTER TABLE memories ALTER created_at DROP NOT NULL")
    await memories.pool.execute("UPDATE memories SET created_at = NULL WHERE id = $1", undated)
    await memories.add("tomatoes like sun", vector=axis(0.0, 1.0))
    searched_for: list[tuple[str, datetime]] = []

    def december(text: str, now: datetime) -> Period:
        searched_for.append((text, now))
        return Period(NOW - timedelta(days=31), NOW)

    query = "when was the boiler serviced"
    result = await memories.recalling(embedder, temporal=december).recall(make_query(query, mode=mode, now=NOW))
    assert searched_for == [(query, NOW)]
    assert result.ids[:2] == [rows["inside"], rows["just after"]]
    assert set(result.ids[2:4]) == {rows["far off"], undated}
    plain = await memories.recalling(embedder).recall(make_query(query, mode=mode))
    assert plain.ids[:4] == sorted([*rows.values(), undated])


async def test_a_query_that_names_no_time_is_scored_as_without_a_period_finder(memories: Any, embedder: Any) -> None:
    for day in range(3):
        await memories.add("the boiler was serviced", vector=axis(1.0), created_at=NOW - timedelta(days=day))
    plain, timed = memories.recalling(embedder), memories.recalling(embedder, temporal=find_period)
    assert [one.rank for one in (await timed.recall(make_query("boiler"))).memories] == [
        one.rank for one in (await plain.recall(make_query("boiler"))).memories
    ]


async def test_an_empty_query_lists_by_importance_as_the_api_does(memories: Any, embedder: Any) -> None:
    """There is nothing to embed and nothing to match."""
    low = await memories.add("a", importance=0.2)
    high = await memories.add("b", importance=0.8)
    result = await memories.recalling(embedder).recall(make_query("   "))
    assert result.ids == [high, low]
    assert embedder.calls == []


@pytest.mark.promise("statements-bind-values")
@pytest.mark.parametrize("lexical", ["bm25", "ts_rank"])
async def test_no_query_text_causes_a_syntax_error(memories: Any, embedder: Any, lexical: str) -> None:
    """Whatever a prompt contains, a recall answers, and the dense leg takes part."""
    await memories.add("some café with a teapot 🫖", vector=axis(1.0))
    recall = memories.recalling(embedder, lexical=lexical)
    for query in (
        "don't & ! | <-> ( ' \\ : *",
        "a\x00b",
        "\ud800 lone",
        "the of and",
        "x" * 60_000,
        "'; DROP TABLE memories; --",
        "café 🫖",
    ):
        assert not (await recall.recall(make_query(query))).degraded, repr(query)


async def test_legs_are_timed_on_request(memories: Any, embedder: Any) -> None:
    """An explained recall has each leg's share of the statement."""
    await memories.add("boil the kettle", vector=axis(1.0))
    recall = memories.recalling(embedder)
    assert (await recall.recall(make_query("kettle"))).timings.legs == {}
    legs = (await recall.recall(make_query("kettle", explain=True))).timings.legs
    assert {"dense", "lexical", "execution"} <= set(legs)


async def test_a_read_only_session_serves_both_legs(memories: Any, database: Any, embedder: Any) -> None:
    """As on a replica: the statement sets what it needs for its own transaction and writes nothing."""
    await memories.add("the zigbee dongle hangs", vector=axis(1.0))
    await memories.add("scrub the pool", vector=axis(0.0, 1.0))
    embedder.vectors["dongle"] = axis(0.9, 0.1)
    settings = {"default_transaction_read_only": "on"}
    async with asyncpg.create_pool(database.dsn, min_size=1, max_size=1, server_settings=settings) as pool:
        recall = HybridRecall(pool, embedder)
        result = await recall.recall(make_query("dongle", explain=True))
        await recall.close()
    assert result.reason is None
    assert result.ids == [1, 2]
    assert {"dense", "lexical"} <= set(result.timings.legs)
