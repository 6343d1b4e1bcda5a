"""Recalls over tables that other programs made: uuid and text keys, other names, values at paths in jsonb."""

import asyncio
import json
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from typing import Any
from uuid import UUID

import httpx
import pytest
from fastapi import FastAPI

from memory_recall import EVERYONE, Everyone, Filters, RecallQuery
from memory_recall.contrib.fastapi import create_recall_router
from memory_recall.schema.columns.names import ColumnNames
from memory_recall.search.sql.bm25 import CollectionStatistics
from memory_recall.search.sql.execution import execute, read_again
from memory_recall.search.sql.plan import RecallPlan
from tests.integration.memory_recall.other_tables.conftest import Store
from tests.integration.memory_recall.read_path.links import enable_graph
from tests.integration.memory_recall.read_path.splitting import Fetched, judged
from tests.integration.memory_recall.read_path.vectors import axis
from tests.support.invoked_command import invoke_memory

STATISTICS = CollectionStatistics(rows=100_000, mean_length=5.0, mean_bytes=80.0)


@pytest.mark.parametrize("mode", ["hybrid", "dense", "lexical"])
async def test_a_memory_is_found_with_its_text_as_a_text_and_all_its_fields(store: Store, mode: Any) -> None:
    """In every order, whichever way the lexical leg scores."""
    wanted = await store.add("the boiler is loud", tags="heating,house", importance=0.75, vector=axis(1.0))
    await store.add("garden tomatoes", vector=axis(0.0, 1.0))
    await store.pool.execute(f"ANALYZE {store.shape.name}")
    for lexical, sort_by in product(("bm25", "ts_rank"), ("relevance", "importance", "recency")):
        case = f"{lexical}, by {sort_by}"
        query = RecallQuery("boiler", user_id=store.shape.owner("ana"), mode=mode, sort_by=sort_by)
        result = await store.recalling(lexical=lexical).recall(query)
        first = result.memories[0]
        assert result.reason is None, case
        assert (first.id, first.content) == (wanted, store.shape.shown.format("the boiler is loud")), case
        assert (first.category, first.tags, float(first.importance or 0)) == ("facts", "heating,house", 0.75), case
        assert (first.owner, first.is_sensitive) == (store.shape.owner("ana"), False), case
        created = (first.created_at or datetime.now(UTC)).astimezone(UTC)
        assert created == datetime(2026, 5, 1, 10, tzinfo=UTC), case
        assert result.ids[0] == wanted, case
        if mode != "dense" and sort_by != "recency":
            assert first.evidence.lexical_score, case


@pytest.mark.parametrize("statistics", [None, STATISTICS], ids=["ts_rank", "large table"])
@pytest.mark.parametrize("text", ["boiler", ""])
async def test_every_form_of_the_lexical_leg_reads_the_table(
    store: Store, statistics: CollectionStatistics | None, text: str
) -> None:
    """That of a large table has statements of its own, and an empty query lists all rows."""
    wanted = await store.add("boiler pressure", importance=1.0)
    await store.add("other pressure", importance=0.0)
    await store.pool.execute(f"ANALYZE {store.shape.name}")
    query = RecallQuery(text, user_id=EVERYONE, mode="lexical")
    plan = RecallPlan(query, store.table, has_state=True, statistics=statistics)
    async with store.pool.acquire() as connection:
        answer = await execute(connection, plan)  # type: ignore[arg-type]  # a pool's connection is a proxy
    assert answer.found[0]["id"] == wanted


async def test_filters_apply_to_columns_of_any_name_and_to_values_at_paths(store: Store) -> None:
    kept = await store.add("boiler", category="ops", tags="a, b")
    await store.add("boiler", category="facts", tags="c", created_at="2025-01-01T00:00:00Z")
    recall = store.recalling()
    for filters in (
        Filters(category="ops"),
        Filters(tags=("b", "x")),
        Filters(since=datetime(2026, 5, 1, 9, 59, tzinfo=UTC)),
        Filters(
            category="ops",
            tags=("a",),
            until=datetime(2026, 5, 1, 10, 1, tzinfo=UTC),
            since=datetime(2026, 1, 1, tzinfo=UTC),
        ),
    ):
        assert (await recall.recall(RecallQuery("boiler", user_id=EVERYONE, filters=filters))).ids == [kept], filters
    late = Filters(since=datetime(2026, 5, 1, 10, 1, tzinfo=UTC))
    assert (await recall.recall(RecallQuery("boiler", user_id=EVERYONE, filters=late))).ids == []


async def test_a_time_at_a_path_is_in_utc_unless_it_names_a_zone_and_a_text_that_is_no_time_is_none(
    store: Store,
) -> None:
    """In a session with another time zone; columns of a time's type refuse what is none."""
    if not store.table.names.of("created_at")[0].path:
        return
    texts = {
        "2026-05-01T10:00:00": datetime(2026, 5, 1, 10, tzinfo=UTC),
        "2026-05-01 10:00:00.5-07": datetime(2026, 5, 1, 17, 0, 0, 500_000, tzinfo=UTC),
        "2026-05-01": datetime(2026, 5, 1, tzinfo=UTC),
        "last year": None,
    }
    found = {await store.add("boiler", created_at=text): moment for text, moment in texts.items()}
    result = await store.recalling().recall(RecallQuery("boiler", user_id=EVERYONE))
    assert {memory.id: memory.created_at for memory in result.memories} == found


@pytest.mark.promise("own-memories-alone")
@pytest.mark.finding("database F0")
@pytest.mark.parametrize("mode", ["hybrid", "dense", "lexical"])
async def test_neither_another_users_nor_a_deleted_or_hidden_memory_is_given_away(store: Store, mode: Any) -> None:
    """They are the nearest, in words and vector; in a filter that only they pass, too."""
    own = await store.add("my boiler", vector=axis(0.5, 0.5))
    masked = await store.add("boiler PIN kestrel", sensitive=True)
    bo = await store.add("boiler boiler", user="bo", category="ops", vector=axis(1.0))
    await store.add("boiler boiler", deleted=True, category="ops")
    await store.add("boiler PIN osprey", user="bo", sensitive=True, category="ops")
    recall, ana = store.recalling(), store.shape.owner("ana")
    for owner, expected in ((ana, {own, masked}), (Everyone(reader=ana), {own, masked, bo}), (EVERYONE, {own, bo})):
        result = await recall.recall(RecallQuery("boiler", user_id=owner, mode=mode))
        assert set(result.ids) == (expected if mode != "dense" else expected - {masked}), owner
        assert "kestrel" not in str(result)
        for memory in result.memories:
            assert memory.is_sensitive == (memory.id == masked)
            assert (memory.content == f"[SENSITIVE - use secret_get(id={masked})]") == memory.is_sensitive
    filtered = RecallQuery("boiler", user_id=ana, mode=mode, filters=Filters(category="ops"))
    assert (await recall.recall(filtered)).ids == []


@pytest.mark.promise("owner-finds-masked-memory")
async def test_rows_of_the_callers_own_have_the_tables_own_names_and_no_text_of_a_sensitive_memory(
    store: Store,
) -> None:
    """Columns with our names that are not what we call so hold texts like any others; so does jsonb."""
    own = await store.add("boiler", vector=axis(1.0))
    masked = await store.add("boiler PIN kestrel", sensitive=True, category="secret")
    rows = await store.recalling().recall_rows(RecallQuery("boiler", user_id=store.shape.owner("ana")))
    hidden = {"tsvector", "halfvec", "vector"}
    shown = {name for name, kind in store.table.catalog.items() if kind.rpartition(".")[2] not in hidden}
    scores = {"rank", "lexical_rank", "lexical_score", "dense_rank", "dense_score"}
    key = store.table.names.of("id")[0].column
    by_id = {str(row[key]): row for row in rows}
    assert by_id.keys() == {own, masked}
    assert set(rows[0]) == shown | scores
    assert isinstance(rows[0][key], UUID if store.table.key.name == "uuid" else str)
    assert all(by_id[own][name] is not None for name in store.shape.texts)
    assert {by_id[masked][name] for name in store.shape.texts} == {None}
    assert "kestrel" not in str(by_id[masked])


async def test_a_table_without_secrets_and_deletions_gives_all_its_memories(store: Store) -> None:
    """If that was said of it; then nothing is masked, whoever asks."""
    ids = {await store.add("boiler", sensitive=True), await store.add("boiler", deleted=True, user="bo")}
    columns = {name: source for name, source in store.shape.columns.items() if name != "is_sensitive"}
    table = replace(store.table, names=ColumnNames.parse({**columns, "deleted_at": ""}, all_public=True))
    for reader in (None, store.shape.owner("ana")):
        query = RecallQuery("boiler", user_id=Everyone(reader=reader))
        for statistics in (None, STATISTICS):
            plan = RecallPlan(query, table, has_state=True, own_columns=True, statistics=statistics)
            async with store.pool.acquire() as connection:
                found = (await execute(connection, plan)).found  # type: ignore[arg-type]  # a pool's connection is a proxy
            assert {row["id"] for row in found} == ids
            assert {(row["content"], row["is_sensitive"]) for row in found} == {
                (store.shape.shown.format("boiler"), False)
            }


@pytest.mark.promise("owner-finds-masked-memory")
@pytest.mark.parametrize("field", ["category", "tags"])
async def test_a_field_that_is_a_part_of_the_text_is_not_shown_of_a_sensitive_memory(store: Store, field: str) -> None:
    """A heading may be both; other categories and tags are shown."""
    own, masked = await store.add("boiler"), await store.add("boiler PIN kestrel", sensitive=True)
    part = str(store.table.names.of("content")[-1])
    table = replace(store.table, names=ColumnNames.parse({**store.shape.columns, field: part}))
    query = RecallQuery("boiler", user_id=store.shape.owner("ana"))
    async with store.pool.acquire() as connection:
        found = (await execute(connection, RecallPlan(query, table, has_state=True, own_columns=True))).found  # type: ignore[arg-type]  # a pool's connection is a proxy
    assert {row["id"]: row[field] for row in found} == {own: "boiler", masked: None}
    assert "kestrel" not in str(found)


async def test_a_memory_that_supersedes_another_one_stands_before_it(store: Store) -> None:
    older, newer = await store.add("boiler boiler old", vector=axis(1.0)), await store.add("boiler new")
    await store.supersede(older, newer)
    result = await store.recalling().recall(RecallQuery("boiler old", user_id=store.shape.owner("ana")))
    assert [(one.id, one.superseded_by) for one in result.memories] == [(newer, None), (older, newer)]


async def test_legs_on_two_connections_find_what_one_statement_finds(store: Store, fetched: Fetched) -> None:
    for number in range(30):
        await store.add(f"boiler {'loud ' * (number % 4)}{number}", vector=axis(1.0, number / 10))
        await store.add(f"boiler without a vector {number}")
    await store.pool.execute(f"ANALYZE {store.shape.name}")
    query = RecallQuery("boiler loud", user_id=store.shape.owner("ana"), limit=20)
    recall = store.recalling()
    split = await recall.recall(query)
    assert fetched.split
    assert fetched.sessions
    alone = await store.recalling(parallel_legs=False).recall(query)
    assert judged(split) == judged(alone)


async def test_what_a_replica_found_is_read_again_by_its_key(store: Store) -> None:
    """The memory that was hidden or deleted meanwhile is left out, or masked."""
    kept, hidden, gone = [await store.add(f"boiler {number}") for number in range(3)]
    query = RecallQuery("boiler", user_id=store.shape.owner("ana"))
    plan = RecallPlan(query, store.table, has_state=True, own_columns=True)
    async with store.pool.acquire() as connection:
        found = (await execute(connection, plan)).found  # type: ignore[arg-type]  # a pool's connection is a proxy
        m, kind = store.table.row(), store.table.key.stored
        await connection.execute(f"DELETE FROM {store.shape.name} WHERE {m.id} = $1::{kind}", gone)
        again = await read_again(connection, plan, found)  # type: ignore[arg-type]
    assert {row["id"] for row in found} == {kept, hidden, gone}
    assert {row["id"] for row in again} == {kept, hidden}


async def test_the_graph_leg_leads_to_memories_by_their_keys(store: Store) -> None:
    """One that shares a concept with the best is found, though no other leg finds it."""
    best = await store.add("boiler", vector=axis(1.0))
    linked, other = await store.add("unrelated words"), await store.add("more unrelated words")
    await enable_graph(store.database.dsn, store.shape.name)
    await store.pool.executemany(
        f"INSERT INTO memory_concepts (memory_id, concept) VALUES ($1::{store.table.key.stored}, $2)",
        [(best, 1), (linked, 1), (other, 2)],
    )
    query = RecallQuery("boiler", user_id=store.shape.owner("ana"))
    found = await store.recalling().recall(query)
    assert [(one.id, one.evidence.graph_score) for one in found.memories] == [(best, None), (linked, 1.0)]


async def test_the_router_and_the_command_line_name_memories_and_owners_as_texts(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = await store.add("boiler pressure")
    await store.add("boiler pressure", user="bo")
    app, ana = FastAPI(), store.shape.owner("ana")
    app.include_router(create_recall_router(store.recalling(), current_user=lambda: ana))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api") as http:
        answer = (await http.post("/api/memories/recall", json={"context": "boiler"})).json()
    assert [(one["id"], one["owner"], one["shared_by"]) for one in answer["memories"]] == [(own, ana, None)]
    monkeypatch.setenv("MEMORY_DATABASE_URL", store.database.dsn)
    monkeypatch.setenv("MEMORY_TABLE", store.shape.name)
    arguments = ["recall", "boiler", "--user", ana, "--mode", "lexical"]
    shown = await asyncio.to_thread(invoke_memory, [*arguments, "--json"])
    assert shown.exit_code == 0, shown.output
    assert [(one["id"], one["owner"]) for one in json.loads(shown.stdout)["memories"]] == [(own, ana)]
    table = await asyncio.to_thread(invoke_memory, arguments)
    assert own[:8] in table.stdout
