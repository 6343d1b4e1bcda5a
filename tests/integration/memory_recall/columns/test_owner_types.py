"""Owners of every type of `user_id` are texts for everybody who calls, and an index on the column is used."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest
from fastapi import FastAPI

from memory_recall import EVERYONE, Everyone, HybridRecall, InvalidInput, RecallOptions, RecallQuery
from memory_recall.contrib.curation.candidates_sql import read_frequencies, read_pairs
from memory_recall.contrib.fastapi import create_recall_router
from memory_recall.contrib.labelling.store import PostgresStore
from memory_recall.graph import enable
from memory_recall.graph.neighbourhood import read_neighbourhood
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.columns.owners import owned_by
from memory_recall.schema.migrate import MigrationRequest, migrate
from memory_recall.schema.table import MemoryTable, describe
from memory_recall.transfer.export_jsonl import exporting
from memory_recall.transfer.import_jsonl import import_memories
from tests.integration.conftest import CopyOf, Database, Fill
from tests.integration.memory_recall.graph.workbench import fill
from tests.support.invoked_command import invoke_memory

PATH = "/api/memories/recall"


@dataclass(frozen=True)
class OwnerType:
    """A type of `user_id`: two owners, the first also spelled otherwise and as an API may have it, and what is none."""

    name: str
    ana: str
    bo: str
    respelled: str
    native: Any
    nobody: tuple[str, ...] = ()


UUIDS = ("11111111-aaaa-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222")
NO_NUMBERS = ("ana", "7.0", "1_0", "\N{ARABIC-INDIC DIGIT SEVEN}", "99999999999999999999", "")
TYPES = [
    OwnerType("text", "ana", "bo", "ana", "ana"),
    OwnerType("varchar(100)", "ana", "bo", "ana", "ana"),
    OwnerType("uuid", *UUIDS, UUIDS[0].upper(), UUID(UUIDS[0]), ("ana", "7", UUIDS[0][:-1])),
    OwnerType("smallint", "7", "-8", "007", 7, (*NO_NUMBERS, "32768")),
    OwnerType("integer", "7", "8", "007", 7, (*NO_NUMBERS, "2147483648")),
    OwnerType("bigint", "9223372036854775807", "8", "9223372036854775807", 2**63 - 1, (*NO_NUMBERS, str(2**63))),
]
TYPED = """
CREATE TABLE memories (id serial, content text NOT NULL, tags text, user_id {kind}, is_sensitive boolean NOT NULL
    DEFAULT false, deleted_at timestamptz, created_at timestamptz NOT NULL DEFAULT now(),
    search_vector tsvector GENERATED ALWAYS AS (to_tsvector('english', content)) STORED, PRIMARY KEY ({key})) {by};
"""
ROWS = (
    "INSERT INTO memories (content, user_id, is_sensitive, embedding) VALUES ('boiler pressure low', '{ana}', false,"
    " '[1,0,0,0,0,0,0,0]'), ('boiler pressure of Bo', '{bo}', false, '[1,0,0,0,0,0,0,0]'),"
    " ('boiler PIN of Bo', '{bo}', true, NULL), ('boiler pressure lower', '{ana}', false, '[1,0,0,0,0,0,0,0]')"
)

# All that reads or writes owners names them by the same functions, so few types are enough where one of each kind is.
BY_NAME = {kind.name: kind for kind in TYPES}
FEW = [BY_NAME[name] for name in ("text", "uuid", "integer")]
LAYOUTS = ["one table", "partitioned by user"]


def types(*kinds: OwnerType) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("kind", kinds, ids=lambda kind: kind.name)


@dataclass
class Typed:
    """A migrated table of four memories of two owners, one of them sensitive."""

    database: Database
    pool: "asyncpg.Pool[asyncpg.Record]"
    table: MemoryTable
    recall: HybridRecall
    recalls: list[str]  # the statements of recalls that were sent


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def contents(kind: OwnerType, layout: str, request_for: Callable[..., MigrationRequest]) -> tuple[str, Fill]:
    """What a database with the table is called, and what makes the table."""

    async def create(database: Database) -> None:
        partitioned = layout != LAYOUTS[0]
        async with database.connection() as connection:
            key, by = ("id, user_id", "PARTITION BY LIST (user_id)") if partitioned else ("id", "")
            await connection.execute(TYPED.format(kind=kind.name, key=key, by=by))
            for number, owner in enumerate((kind.ana, kind.bo) if partitioned else ()):
                await connection.execute(
                    f"CREATE TABLE memories_{number} PARTITION OF memories FOR VALUES IN ('{owner}')"
                )
            await connection.execute("CREATE INDEX ON memories (user_id)")
        await migrate(DsnText(database.dsn), request_for())
        async with database.connection() as connection:
            await connection.execute(ROWS.format(ana=kind.ana, bo=kind.bo))
            table = await describe(connection, "memories")
            if not partitioned:  # there is no concept graph of a partitioned table
                await enable(connection, table)
                await fill(connection, table)

    return f"owners {kind.name} {layout}", create


@asynccontextmanager
async def opened(database: Database) -> AsyncIterator[Typed]:
    recalls: list[str] = []

    def note(sent: Any) -> None:
        if "gate AS" in sent.query:
            recalls.append(sent.query)

    async def listen(connection: Any) -> None:
        connection.add_query_logger(note)

    async with asyncpg.create_pool(database.dsn, min_size=1, init=listen) as pool:
        async with pool.acquire() as connection:
            table = await describe(connection, "memories")
        recall = HybridRecall(pool, None, RecallOptions(time_budget=60))
        yield Typed(database, pool, table, recall, recalls)
        await recall.close()


@pytest.fixture
async def typed(contents: tuple[str, Fill], copy_of: CopyOf) -> AsyncIterator[Typed]:
    """The table, which cannot be changed."""
    async with opened(await copy_of(*contents, shared=True)) as made:
        yield made


@pytest.fixture
async def changeable(contents: tuple[str, Fill], copy_of: CopyOf) -> AsyncIterator[Typed]:
    async with opened(await copy_of(*contents)) as made:
        yield made


@types(*TYPES)
@pytest.mark.finding("database F1")
@pytest.mark.parametrize("lexical", ["bm25", "ts_rank"])
async def test_a_recall_finds_one_users_memories_and_names_their_owner(
    kind: OwnerType, typed: Typed, lexical: Any
) -> None:
    recall = HybridRecall(typed.pool, None, RecallOptions(lexical=lexical, time_budget=60))
    for user in (kind.ana, kind.respelled, kind.native):
        found = await recall.recall(RecallQuery("boiler", user_id=user))
        assert [memory.owner for memory in found.memories] == [kind.ana, kind.ana]
        assert found.reader == kind.ana
    await recall.close()


@types(*TYPES)
async def test_everybodys_memories_have_owners_and_hide_the_sensitive_ones_of_others(
    kind: OwnerType, typed: Typed
) -> None:
    for reader, count in ((kind.respelled, 3), (kind.bo, 4)):
        found = await typed.recall.recall(RecallQuery("boiler", user_id=Everyone(reader=reader)))
        assert len(found.memories) == count
        assert {memory.owner for memory in found.memories} == {kind.ana, kind.bo}


@types(*TYPES)
@pytest.mark.finding("database F2")
async def test_the_router_answers_with_owners_as_text(kind: OwnerType, typed: Typed) -> None:
    for identity in (kind.ana, kind.respelled, kind.native):
        answer = await asked(typed.recall, identity, scope="everyone")
        assert answer.status_code == 200
        shown = sorted((one["owner"], one["shared_by"]) for one in answer.json()["memories"])
        assert shown == sorted([(kind.ana, None), (kind.ana, None), (kind.bo, kind.bo)])


@types(*(kind for kind in TYPES if kind.nobody))
@pytest.mark.finding("database F2")
async def test_an_id_that_no_user_can_have_is_refused_and_not_searched(kind: OwnerType, typed: Typed) -> None:
    await typed.recall.recall(RecallQuery("boiler", user_id=kind.ana))
    assert len(typed.recalls) == 1
    for nobody in kind.nobody:
        with pytest.raises(InvalidInput, match="`user_id` cannot be used"):
            await typed.recall.recall(RecallQuery("boiler", user_id=nobody))
        answer = await asked(typed.recall, nobody)
        assert answer.status_code == (422 if nobody else 401)
        assert nobody == "" or nobody not in answer.text
    assert len(typed.recalls) == 1


@pytest.mark.parametrize(
    ("kind", "layout"),
    [*((kind, LAYOUTS[0]) for kind in FEW), (BY_NAME["integer"], LAYOUTS[1])],
    ids=lambda value: getattr(value, "name", value),
)
@pytest.mark.finding("database F2")
async def test_the_commands_show_owners_and_refuse_what_is_none(
    kind: OwnerType, typed: Typed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MEMORY_DATABASE_URL", typed.database.dsn)

    async def memory(*arguments: str) -> Any:
        return await asyncio.to_thread(invoke_memory, arguments)

    lexical = ("--mode", "lexical")
    found = json.loads((await memory("recall", "boiler", "--user", kind.respelled, *lexical, "--json")).stdout)
    assert [one["owner"] for one in found["memories"]] == [kind.ana, kind.ana]
    assert "boiler pressure" in (await memory("recall", "boiler", "--everyone", *lexical)).stdout
    if not typed.table.is_partitioned:
        shown = json.loads((await memory("graph", "show", "boiler", "--user", kind.respelled, "--json")).stdout)
        assert shown["memories"] == 2
    labels, proposals = tmp_path / "labels.json", tmp_path / "proposals.jsonl"
    drawn = await memory("questions", "collect", str(labels), "--draw", "5", "--user", kind.respelled, "--json")
    assert json.loads(drawn.stdout)["drawn"] == 2
    assert (await memory("curate", "find", str(proposals), "--user", kind.respelled)).exit_code == 0
    for nobody in kind.nobody[:1]:
        for command in (
            ("recall", "boiler", *lexical),
            ("graph", "show", "boiler"),
            ("questions", "collect", str(labels), "--draw", "5"),
            ("curate", "find", str(tmp_path / "new.jsonl")),
        ):
            refused = await memory(*command, f"--user={nobody}")
            assert (refused.exit_code, refused.stderr.split(":")[0]) == (1, "InvalidInput"), (command, nobody)


@types(*FEW)
async def test_an_export_is_imported_again_without_a_change_and_a_wrong_owner_is_named(
    kind: OwnerType, changeable: Typed
) -> None:
    async with changeable.pool.acquire() as pooled:
        connection: Any = pooled
        async with exporting(connection, changeable.table) as export:
            lines = [json.dumps(line).encode() async for line in export.memories()]
        assert {json.loads(line)["user_id"] for line in lines} == {kind.ana, kind.bo}
        assert (await import_memories(connection, changeable.table, lines)).unchanged == 3
        await connection.execute("DELETE FROM memories")
        assert (await import_memories(connection, changeable.table, lines)).inserted == 3
        assert await connection.fetchval("SELECT count(*) FROM memories WHERE user_id::text = $1", kind.ana) == 2
        if isinstance(kind.native, int):
            line = json.dumps({"id": 90, "content": "a number", "user_id": kind.native}).encode()
            assert (await import_memories(connection, changeable.table, [line])).inserted == 1
        for nobody in kind.nobody:
            wrong = [lines[0], json.dumps({"id": 91, "content": "x", "user_id": nobody}).encode()]
            with pytest.raises(InvalidInput, match="line 2: `user_id` cannot be used"):
                await import_memories(connection, changeable.table, wrong)


@types(*FEW)
@pytest.mark.finding("database F1")
async def test_graph_curation_and_labelling_read_one_owners_memories(kind: OwnerType, typed: Typed) -> None:
    async with typed.pool.acquire() as pooled:
        connection: Any = pooled
        if not typed.table.is_partitioned:
            seen = await read_neighbourhood(connection, typed.table, "boiler", user=kind.respelled)
            assert [one.content for one in seen.newest] == ["boiler pressure lower", "boiler pressure low"]
            everybody = await read_neighbourhood(connection, typed.table, "boiler", user=None)
            assert everybody.memories == 3
        pairs = await read_pairs(connection, typed.table, user=kind.respelled, since=None, links=False)
        assert [(one.older.id, one.newer.id) for one in pairs] == [(1, 4)]
        assert (await read_frequencies(connection, typed.table, user=kind.respelled, links=False)).rows == 2
    store = PostgresStore(typed.pool, typed.table, [], None)
    assert sorted(await store.draw(9, seed=1, user=kind.respelled, without=())) == [1, 4]


@types(*TYPES)
@pytest.mark.finding("database F1")
async def test_an_index_on_the_column_or_one_partition_alone_is_read(kind: OwnerType, typed: Typed) -> None:
    """Also by the plan that serves all values of a prepared statement."""
    await typed.recall.recall(RecallQuery("boiler", user_id=EVERYONE))
    condition = owned_by(typed.table, "m", "$1")
    async with typed.pool.acquire() as connection:
        await connection.execute("SET enable_seqscan = off")
        for mode in ("force_custom_plan", "force_generic_plan"):
            await connection.execute(f"SET plan_cache_mode = {mode}")
            rows = await connection.fetch(f"EXPLAIN (ANALYZE) SELECT id FROM memories m WHERE {condition}", kind.ana)
            plan = "\n".join(row[0] for row in rows)
            assert "Index Cond: (" in plan
            assert "memories_1" not in plan or "never executed" in plan


async def asked(recall: HybridRecall, identity: Any, **options: Any) -> httpx.Response:
    app = FastAPI()
    app.include_router(create_recall_router(recall, current_user=lambda: identity, **options))
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.post(PATH, json={"context": "boiler"})
