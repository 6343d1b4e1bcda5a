"""A recall returns nothing that its query may not find, after any history of writes over tenants with equal ids.

The key of the table has been replaced by one of tenant and id, so that an id tells nothing. Rows of three tenants with
the same few ids are written, marked sensitive, deleted softly and for good, given to another tenant, linked in the
concept graph and superseded, in transactions that overlap at any level of isolation and roll back. Between them anybody
asks, in one statement or in three.
"""

import os
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import asyncpg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from memory_recall import EVERYONE, Everyone, Filters, RecallQuery
from memory_recall.postgres.connection import DsnText
from memory_recall.search.hybrid_recall import HybridRecall
from memory_recall.search.sql import parallel
from memory_recall.search.sql.readiness import read_readiness
from tests.integration.conftest import CopyOf, Database
from tests.integration.memory_recall.read_path.conftest import ChosenEmbedder, Memories, open_memories
from tests.integration.memory_recall.read_path.links import enable_graph
from tests.integration.memory_recall.read_path.vectors import DIMENSIONS, axis
from tests.integration.memory_recall.test_store_sensitivity import LEVELS
from tests.integration.memory_recall.workbench import migrate_and_index

Step = tuple[Any, ...]
HISTORIES = int(os.environ.get("MEMORY_TEST_HISTORIES", "20"))
TENANTS = ("ana", "bo", "cy")
WORDS = ("boiler", "pressure", "garden", "kestrel")
CATEGORIES = ("facts", "debts")

who, ids, tenants = st.integers(0, 1), st.integers(1, 4), st.sampled_from(TENANTS)
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)
flags, rarely = st.booleans(), st.sampled_from([False, False, False, True])
asked = st.builds(
    RecallQuery,
    text=st.sampled_from(WORDS),
    user_id=st.one_of(tenants, tenants, st.just(EVERYONE), st.builds(Everyone, reader=tenants)),
    filters=st.builds(Filters, category=st.sampled_from([None, None, *CATEGORIES])),
    mode=st.sampled_from(["hybrid", "hybrid", "dense", "lexical"]),
    limit=st.sampled_from([1, 3, 50]),
)
steps = st.one_of(
    *(
        st.tuples(st.just("write"), who, tenants, ids, texts, rarely, rarely, st.sampled_from(CATEGORIES))
        for _ in range(2)
    ),
    st.tuples(st.just("hide"), who, tenants, ids, flags),
    st.tuples(st.just("mark_deleted"), who, tenants, ids, flags),
    st.tuples(st.just("delete"), who, tenants, ids),
    st.tuples(st.just("give"), who, tenants, ids, tenants),
    st.tuples(st.just("link"), who, ids, st.sampled_from(WORDS), tenants),
    st.tuples(st.just("supersede"), who, tenants, ids, ids),
    st.tuples(st.just("begin"), who, st.sampled_from(LEVELS)),
    st.tuples(st.just("commit"), who),
    st.tuples(st.just("rollback"), who),
    *(st.tuples(st.just("ask"), asked, flags, st.sampled_from(["bm25", "ts_rank"])) for _ in range(4)),
)
histories = st.lists(steps, min_size=5, max_size=40)


class Tenants:
    """Plays a history, and judges each answer by the rows that are committed at that moment."""

    def __init__(self, memories: Memories, writers: list[Any], recalls: dict[str, HybridRecall]) -> None:
        self._memories = memories
        self._writers = writers
        self._recalls = recalls
        self.answered = 0

    async def play(self, history: list[Step]) -> None:
        for name, *arguments in history:
            if name == "ask":
                await self._ask(*arguments)
                continue
            writer = self._writers[arguments[0]]
            try:
                await getattr(self, f"_{name}")(writer, *arguments[1:])
            except asyncpg.PostgresError:  # a lock, a duplicate, a conflict of snapshots: part of history, too
                if writer.is_in_transaction():
                    await writer.execute("ROLLBACK")

    async def _ask(self, query: RecallQuery, split: bool, lexical: str) -> None:
        recall = self._recalls[lexical]
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(parallel, "WORTH_SPLITTING", 0 if split else 10**9)
            found = await recall.recall(query)
        rows = await self._memories.pool.fetch(
            "SELECT id, user_id, content, category, is_sensitive, deleted_at FROM memories"
        )
        there = {(row["user_id"], row["id"]): row for row in rows}
        for memory in found.memories:
            self.answered += 1
            row = there[memory.owner, memory.id]
            reader = query.user_id if isinstance(query.user_id, str) else query.user_id.reader
            assert isinstance(query.user_id, Everyone) or memory.owner == query.user_id
            assert row["deleted_at"] is None
            assert query.filters.category in {None, row["category"]}
            assert memory.is_sensitive == row["is_sensitive"]
            assert not row["is_sensitive"] or memory.owner == reader
            assert row["is_sensitive"] or memory.content == row["content"]
        assert len(found.memories) == len({(memory.owner, memory.id) for memory in found.memories})

    async def _write(self, c: Any, user: str, key: int, text: str, *marks: Any) -> None:
        secret, deleted, category = marks
        vector = axis(1.0, key / 10, TENANTS.index(user) / 10)
        await c.execute(
            "INSERT INTO memories (id, user_id, content, is_sensitive, deleted_at, category, embedding) "
            "VALUES ($1, $2, $3, $4, CASE WHEN $5 THEN now() END, $6, $7::real[]::halfvec) "
            "ON CONFLICT (user_id, id) DO UPDATE SET content = excluded.content, category = excluded.category, "
            "is_sensitive = excluded.is_sensitive, deleted_at = excluded.deleted_at, embedding = excluded.embedding",
            key, user, text, secret, deleted, category, vector,
        )  # fmt: skip

    async def _hide(self, c: Any, user: str, key: int, secret: bool) -> None:
        await c.execute("UPDATE memories SET is_sensitive = $3 WHERE user_id = $1 AND id = $2", user, key, secret)

    async def _mark_deleted(self, c: Any, user: str, key: int, deleted: bool) -> None:
        moment = "CASE WHEN $3 THEN now() END"
        await c.execute(f"UPDATE memories SET deleted_at = {moment} WHERE user_id = $1 AND id = $2", user, key, deleted)

    async def _delete(self, c: Any, user: str, key: int) -> None:
        await c.execute("DELETE FROM memories WHERE user_id = $1 AND id = $2", user, key)

    async def _give(self, c: Any, user: str, key: int, other: str) -> None:
        await c.execute("UPDATE memories SET user_id = $3 WHERE user_id = $1 AND id = $2", user, key, other)

    async def _link(self, c: Any, key: int, name: str, user: str) -> None:
        link = "INSERT INTO memory_concepts VALUES ($1, memory_index_concept($2, $3)) ON CONFLICT DO NOTHING"
        await c.execute(link, key, user, name)

    async def _supersede(self, c: Any, user: str, older: int, newer: int) -> None:
        hashed = "(SELECT memory_index_text_hash(content) FROM memories WHERE user_id = $1::text AND id = {}::bigint)"
        await c.execute(
            "INSERT INTO memory_supersessions (run, action, id, superseded_by, text_hash, successor_hash) "
            f"VALUES (1, 'UPDATE', $2::bigint, $3::bigint, {hashed.format('$2')}, {hashed.format('$3')})",
            user, older, newer,
        )  # fmt: skip

    async def _begin(self, c: Any, level: str) -> None:
        if not c.is_in_transaction():
            await c.execute(f"BEGIN ISOLATION LEVEL {level}")
            await c.fetchval("SELECT count(*) FROM memories")

    async def _commit(self, c: Any) -> None:
        await c.execute("COMMIT")

    async def _rollback(self, c: Any) -> None:
        await c.execute("ROLLBACK")


@asynccontextmanager
async def opened_tenants(database: Database) -> Any:
    writers = [await asyncpg.connect(database.dsn, server_settings={"lock_timeout": "20"}) for _ in range(2)]
    async with open_memories(database) as memories:
        async with memories.pool.acquire(), memories.pool.acquire():
            pass  # so that two connections are idle
        async with memories.pool.acquire() as connection:
            readiness = await read_readiness(connection, "memories")
        assert (readiness.concept_graph, readiness.superseding) == (True, True), "a leg takes no part"
        embedder = ChosenEmbedder()
        recalls = {lexical: memories.recalling(embedder, lexical=lexical) for lexical in ("bm25", "ts_rank")}
        yield memories, writers, recalls
    for writer in writers:
        await writer.close()


@pytest.fixture
async def parts(copy_of: CopyOf, request_for: Any) -> Any:
    async def fill(empty: Database) -> None:
        await migrate_and_index(DsnText(empty.dsn), request_for(dimensions=DIMENSIONS, model="tiny"))
        await enable_graph(empty.dsn)
        async with empty.connection() as connection:
            await connection.execute(
                "ALTER TABLE memories DROP CONSTRAINT memories_pkey, ADD PRIMARY KEY (user_id, id);"
                "INSERT INTO memory_supersessions (run, action, id, superseded_by, text_hash, successor_hash)"
                " VALUES (1, 'UPDATE', 98, 99, '', '')"
            )

    async with opened_tenants(await copy_of("tenants with equal ids", fill)) as opened:
        yield opened


_NEAR = RecallQuery("boiler", user_id="ana", limit=50)


@pytest.mark.finding("database F0")
@pytest.mark.promise("recall-within-its-conditions")
@settings(max_examples=HISTORIES, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(history=histories)
@example(
    history=[
        ("write", 0, "cy", 1, "boiler", False, True, "facts"),
        ("write", 0, "bo", 1, "boiler", True, False, "facts"),
        ("write", 0, "ana", 1, "boiler pressure", False, False, "facts"),
        *(("ask", replace(_NEAR, mode=mode), split, "bm25") for mode in ("hybrid", "dense") for split in (True, False)),
    ]
)
@example(
    history=[
        ("write", 0, "ana", 1, "boiler", False, False, "facts"),
        ("write", 0, "bo", 2, "garden", False, False, "facts"),
        ("write", 0, "ana", 2, "garden", False, False, "debts"),
        ("link", 0, 1, "kestrel", "ana"),
        ("link", 0, 2, "kestrel", "ana"),
        ("begin", 1, "REPEATABLE READ"),
        ("hide", 0, "ana", 2, True),
        ("supersede", 1, "bo", 2, 1),
        ("ask", replace(_NEAR, filters=Filters(category="facts")), False, "bm25"),
        ("commit", 1),
        ("ask", _NEAR, True, "bm25"),
    ]
)
async def test_no_sequence_of_writes_lets_a_recall_return_what_its_query_may_not_find(
    parts: Any, history: list[Step]
) -> None:
    memories, writers, recalls = parts
    for writer in writers:
        if writer.is_in_transaction():
            await writer.execute("ROLLBACK")
    await memories.pool.execute(
        "SET lock_timeout = '60s'; TRUNCATE memories; DELETE FROM memory_supersessions WHERE id < 98;"
        " TRUNCATE memory_graph_changes; RESET lock_timeout"
    )
    await memories.pool.execute("UPDATE memory_supersessions SET undone_at = NULL")
    await Tenants(memories, writers, recalls).play(history)
