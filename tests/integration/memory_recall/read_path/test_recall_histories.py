"""A recall returns nothing that its query may not find, after any history of writes over tenants with equal ids.

The key of the table has been replaced by one of tenant and id, so that an id tells nothing. Rows of three tenants with
the same few ids are written, marked sensitive, deleted softly and for good, given to another tenant, linked in the
concept graph and superseded, in transactions that overlap at any level of isolation and roll back. Between them anybody
asks, in one statement or in three. A part of the histories are played over tables of other programs, with other names
and keys and with the values inside a document.
"""

import os
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import asyncpg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from memory_recall import EVERYONE, Everyone, Filters, RecallQuery
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.graph_relations import CHANGES, CONCEPT, CONCEPTS
from memory_recall.schema.supersessions import SUPERSESSIONS
from memory_recall.schema.table import MemoryTable, describe
from memory_recall.search.hybrid_recall import HybridRecall
from memory_recall.search.sql import parallel
from memory_recall.search.sql.readiness import read_readiness
from tests.integration.conftest import CopyOf, Database
from tests.integration.memory_recall.history_shapes import OTHERS, OURS, Shape
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
SHAPES = {"ours": OURS, **OTHERS}
shapes = st.sampled_from(["ours", "ours", "ours", *OTHERS])
_ROW = {
    "id": "$1", "user_id": "$2::text", "content": "$3::text", "is_sensitive": "$4::boolean",
    "deleted_at": "CASE WHEN $5::boolean THEN now() END", "category": "$6::text", "embedding": "$7::real[]::halfvec",
}  # fmt: skip


@dataclass(frozen=True)
class Parts:
    """A table of tenants, two connections that write to it, and recalls by their lexical leg."""

    shape: Shape
    table: MemoryTable
    memories: Memories
    writers: list[Any]
    recalls: dict[str, HybridRecall]


class Tenants:
    """Plays a history, and judges each answer by the rows that are committed at that moment."""

    def __init__(self, parts: Parts) -> None:
        self._shape, self._table = parts.shape, parts.table
        self._memories = parts.memories
        self._writers = parts.writers
        self._recalls = parts.recalls
        self.answered = 0
        self.refused: list[str] = []

    async def play(self, history: list[Step]) -> None:
        for name, *arguments in history:
            if name == "ask":
                await self._ask(*arguments)
                continue
            writer = self._writers[arguments[0]]
            try:
                await getattr(self, f"_{name}")(writer, *arguments[1:])
            except asyncpg.PostgresError:  # a lock, a duplicate, a conflict of snapshots: part of history, too
                self.refused.append(name)
                if writer.is_in_transaction():
                    await writer.execute("ROLLBACK")

    async def _ask(self, query: RecallQuery, split: bool, lexical: str) -> None:
        recall = self._recalls[lexical]
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(parallel, "WORTH_SPLITTING", 0 if split else 10**9)
            found = await recall.recall(query)
        rows = await self._memories.pool.fetch(self._shape.rows)
        there = {(row["user_id"], str(row["id"])): row for row in rows}
        for memory in found.memories:
            self.answered += 1
            row = there[memory.owner, str(memory.id)]
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
        changed = {name: value for name, value in _ROW.items() if name not in {"id", "user_id"}}
        await c.execute(
            f"{self._shape.insert(**_ROW)} ON CONFLICT ({_both(self._shape)}) DO UPDATE SET "
            f"{self._shape.sets(**changed)}",
            self._shape.key(key), user, text, secret, deleted, category, vector,
        )  # fmt: skip

    async def _hide(self, c: Any, user: str, key: int, secret: bool) -> None:
        await self._update(c, user, key, self._shape.sets(is_sensitive="$3::boolean"), secret)

    async def _mark_deleted(self, c: Any, user: str, key: int, deleted: bool) -> None:
        await self._update(c, user, key, self._shape.sets(deleted_at="CASE WHEN $3::boolean THEN now() END"), deleted)

    async def _delete(self, c: Any, user: str, key: int) -> None:
        await c.execute(f"DELETE FROM {self._shape.table} WHERE {self._one}", user, self._shape.key(key))

    async def _give(self, c: Any, user: str, key: int, other: str) -> None:
        await self._update(c, user, key, self._shape.sets(user_id="$3::text"), other)

    async def _link(self, c: Any, key: int, name: str, user: str) -> None:
        number = f"{self._table.own(CONCEPT)}($2, $3)"
        link = f"INSERT INTO {self._table.own(CONCEPTS)} VALUES ($1, {number}) ON CONFLICT DO NOTHING"
        await c.execute(link, self._shape.key(key), user, name)

    async def _supersede(self, c: Any, user: str, older: int, newer: int) -> None:
        hashed, row = self._table.own("memory_index_text_hash"), self._table.row("m")
        key, owner = self._table.key.stored, self._shape.name("user_id")
        texts = ", ".join(
            f"(SELECT {hashed}({row.content}) FROM {self._shape.table} m "
            f"WHERE {owner} = $1::text AND {self._shape.name('id')} = {place}::{key})"
            for place in ("$2", "$3")
        )
        await c.execute(
            f"INSERT INTO {self._table.own(SUPERSESSIONS)} "
            "(run, action, id, superseded_by, text_hash, successor_hash) "
            f"VALUES (1, 'UPDATE', $2::{key}, $3::{key}, {texts})",
            user, self._shape.key(older), self._shape.key(newer),
        )  # fmt: skip

    @property
    def _one(self) -> str:
        return f"{self._shape.name('user_id')} = $1 AND {self._shape.name('id')} = $2"

    async def _update(self, c: Any, user: str, key: int, changed: str, value: object) -> None:
        await c.execute(
            f"UPDATE {self._shape.table} SET {changed} WHERE {self._one}", user, self._shape.key(key), value
        )

    async def _begin(self, c: Any, level: str) -> None:
        if not c.is_in_transaction():
            await c.execute(f"BEGIN ISOLATION LEVEL {level}")
            await c.fetchval(f"SELECT count(*) FROM {self._shape.table}")

    async def _commit(self, c: Any) -> None:
        await c.execute("COMMIT")

    async def _rollback(self, c: Any) -> None:
        await c.execute("ROLLBACK")


def _both(shape: Shape) -> str:
    """Return the columns of the key by which the histories know a row: user and id."""
    return f"{shape.name('user_id')}, {shape.name('id')}"


@asynccontextmanager
async def opened_tenants(database: Database, shape: Shape) -> Any:
    writers = [await asyncpg.connect(database.dsn, server_settings={"lock_timeout": "20"}) for _ in range(2)]
    async with open_memories(database) as memories:
        async with memories.pool.acquire(), memories.pool.acquire():
            pass  # so that two connections are idle
        async with memories.pool.acquire() as connection:
            readiness = await read_readiness(connection, shape.plain_name)
        assert (readiness.concept_graph, readiness.superseding) == (True, True), "a leg takes no part"
        embedder = ChosenEmbedder()
        recalls = {
            lexical: memories.recalling(embedder, lexical=lexical, table=shape.plain_name)
            for lexical in ("bm25", "ts_rank")
        }
        yield Parts(shape, readiness.table, memories, writers, recalls)
    for writer in writers:
        await writer.close()


@pytest.fixture
async def parts(copy_of: CopyOf, request_for: Any) -> Any:
    """By form, the parts of a history over a table in which an id tells nothing without its user."""

    async def fill(empty: Database, shape: Shape) -> None:
        if shape.create:
            async with empty.connection() as connection:
                await connection.execute(shape.create)
        request = request_for(dimensions=DIMENSIONS, model="tiny", table=shape.plain_name, columns=shape.columns)
        await migrate_and_index(DsnText(empty.dsn), request)
        await enable_graph(empty.dsn, shape.plain_name)
        async with empty.connection() as connection:
            table = await describe(connection, shape.plain_name)
            primary = await connection.fetchval(
                "SELECT quote_ident(conname) FROM pg_constraint WHERE contype = 'p' AND conrelid = to_regclass($1)",
                table.qualified,
            )
            await connection.execute(
                f"ALTER TABLE {table.qualified} DROP CONSTRAINT {primary};"
                f"CREATE UNIQUE INDEX ON {table.qualified} ({_both(shape)})"
            )
            await connection.execute(
                f"INSERT INTO {table.own(SUPERSESSIONS)} (run, action, id, superseded_by, text_hash, successor_hash)"
                " VALUES (1, 'UPDATE', $1, $2, '', '')",
                shape.key(98), shape.key(99),
            )  # fmt: skip

    async with AsyncExitStack() as stack:
        yield {
            name: await stack.enter_async_context(
                opened_tenants(await copy_of(f"tenants with equal ids {name}", partial(fill, shape=shape)), shape)
            )
            for name, shape in SHAPES.items()
        }


_NEAR = RecallQuery("boiler", user_id="ana", limit=50)


@pytest.mark.finding("database F0")
@pytest.mark.promise("recall-within-its-conditions")
@settings(max_examples=HISTORIES, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(form=shapes, history=histories)
@example(
    form="ours",
    history=[
        ("write", 0, "cy", 1, "boiler", False, True, "facts"),
        ("write", 0, "bo", 1, "boiler", True, False, "facts"),
        ("write", 0, "ana", 1, "boiler pressure", False, False, "facts"),
        *(("ask", replace(_NEAR, mode=mode), split, "bm25") for mode in ("hybrid", "dense") for split in (True, False)),
    ],
)
@example(
    form="ours",
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
    ],
)
async def test_no_sequence_of_writes_lets_a_recall_return_what_its_query_may_not_find(
    parts: dict[str, Parts], form: str, history: list[Step]
) -> None:
    chosen = parts[form]
    await emptied(chosen)
    await Tenants(chosen).play(history)


@pytest.mark.parametrize("form", SHAPES)
async def test_the_steps_of_these_histories_are_carried_out_in_tables_of_every_form(
    parts: dict[str, Parts], form: str
) -> None:
    """What Postgres refuses is a part of a history, so a step that is always refused would be noticed by nobody."""
    await emptied(parts[form])
    tenants = Tenants(parts[form])
    everything = RecallQuery("boiler", user_id=EVERYONE, limit=50)  # returns one of the rows that share an id
    await tenants.play([
        ("write", 0, "ana", 1, "boiler", False, False, "facts"),
        ("write", 0, "ana", 1, "boiler pressure", False, False, "debts"),
        ("write", 0, "bo", 1, "boiler", False, False, "facts"),
        ("write", 0, "bo", 2, "kestrel", False, False, "facts"),
        ("link", 0, 1, "kestrel", "bo"),
        ("link", 0, 2, "kestrel", "bo"),
        ("give", 0, "bo", 2, "cy"),
        ("ask", everything, False, "bm25"),
        ("ask", replace(everything, filters=Filters(category="debts")), True, "ts_rank"),
        ("write", 0, "ana", 3, "garden", False, False, "facts"),
        ("supersede", 0, "ana", 3, 1),
        ("hide", 0, "ana", 1, True),
        ("mark_deleted", 0, "bo", 1, True),
        ("delete", 0, "cy", 2),
        ("ask", everything, False, "bm25"),
    ])  # fmt: skip
    assert tenants.refused == []
    assert tenants.answered == 4


async def emptied(parts: Parts) -> None:
    """Roll back what is open, and empty the table and what belongs to it."""
    for writer in parts.writers:
        if writer.is_in_transaction():
            await writer.execute("ROLLBACK")
    table, journal = parts.table, parts.table.own(SUPERSESSIONS)
    kept = f"'{parts.shape.key(98)}'"
    await parts.memories.pool.execute(
        f"SET lock_timeout = '60s'; TRUNCATE {table.qualified}; DELETE FROM {journal} WHERE id <> {kept};"
        f" TRUNCATE {table.own(CHANGES)}; UPDATE {journal} SET undone_at = NULL; RESET lock_timeout"
    )
