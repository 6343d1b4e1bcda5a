"""A table's name may be as long as Postgres allows: nothing that is made for it has a name that Postgres would cut."""

import hashlib
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import asyncpg
import pytest

from memory_recall import EVERYONE
from memory_recall.embedding.client import EmbedderClient
from memory_recall.graph import disable, enable, graph_state
from memory_recall.hnsw.definition import drop_invalid
from memory_recall.hnsw.repair import IndexParameters, build_index
from memory_recall.postgres.connection import Connection, DsnText, connect, create_pool
from memory_recall.schema.migrate import MigrationRequest, migrate, remove
from memory_recall.schema.names import index_name, own_suffix
from memory_recall.schema.revisions import require_schema
from memory_recall.schema.table import MemoryTable, describe
from memory_recall.search.hybrid_recall import HybridRecall
from memory_recall.search.options import RecallOptions
from memory_recall.status import inspect
from tests.integration.conftest import Database
from tests.integration.memory_recall.fake_embedder import FakeEmbedder
from tests.integration.memory_recall.graph.workbench import fill
from tests.integration.memory_recall.queries import make_query
from tests.integration.memory_recall.swap.conftest import NEXT_SALT, SwapBench
from tests.integration.memory_recall.workbench import DIMENSIONS, Workbench

Requests = Callable[..., MigrationRequest]

_CUT = re.compile(r'identifier "([^"]*)" will be truncated')
_TOO_LONG = "n" * 64
_INDEXES = """
SELECT c.relname AS relation, regexp_replace(pg_get_indexdef(i.indexrelid), '^CREATE (UNIQUE )?INDEX .* USING', '\\1')
           AS definition
  FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid WHERE c.relnamespace = 'public'::regnamespace AND i.indisvalid
"""


@pytest.fixture
async def talkative(database: Database) -> AsyncIterator[Database]:
    """A database whose server logs every name that it cuts; at the end it must have logged none but the fixture's."""
    admin = await asyncpg.connect(database.superuser_dsn)
    await admin.execute(f"ALTER DATABASE {database.name} SET log_min_messages = notice")
    await admin.close()
    before = database.server.log.stat().st_size

    def cut() -> list[str]:
        return _CUT.findall(database.server.log.read_bytes()[before:].decode())

    async with database.connection() as connection:
        await connection.execute(f"SELECT 1 AS {_TOO_LONG}")
    assert cut() == [_TOO_LONG]
    yield database
    assert cut() == [_TOO_LONG]


def named(length: int, end: str = "") -> str:
    return ("memories_of_a_long_name_" * 3)[: length - len(end)] + end


async def indexes_of(connection: Connection, table: MemoryTable) -> list[tuple[str, str]]:
    """The indexes of a table of memories and of our own tables for it, without the names that depend on its name."""
    rows = await connection.fetch(_INDEXES)
    own = [(row["relation"].removesuffix(table.suffix), row["definition"]) for row in rows]
    shown = [("memories" if relation == table.name else relation, definition) for relation, definition in own]
    return sorted(one for one in shown if "version" not in one[0])


@pytest.mark.parametrize("length", [30, 33, 34, 43, 49, 52, 63])
async def test_a_table_of_any_legal_name_gets_the_same_indexes_and_rules(
    talkative: Database, database: Database, request_for: Requests, length: int
) -> None:
    source, name = DsnText(talkative.dsn), named(length)
    await migrate(source, request_for(table=name))
    await build_index(source, name, IndexParameters())
    connection = await connect(source)
    table = await require_schema(connection, name)
    facts = await inspect(connection, name)
    assert (facts.schema_differences, facts.index.valid, facts.index.ours) == ("", True, True)
    found = await indexes_of(connection, table)
    assert (await migrate(source, request_for(table=name))).applied == []
    await remove(source, request_for(table=name))
    await connection.execute(f"DROP TABLE {table.qualified}")
    await migrate(source, request_for())
    await build_index(source, "memories", IndexParameters())
    assert found == await indexes_of(connection, await require_schema(connection, "memories"))
    await connection.close()


async def test_two_tables_whose_longest_names_differ_at_the_end_are_filled_recalled_and_swapped(
    talkative: Database, request_for: Requests
) -> None:
    """The first has our names without a suffix, the second its own; neither sees anything of the other."""
    names = (named(63, "a"), named(63, "b"))
    for name in names:
        await migrate(DsnText(talkative.dsn), request_for(table=name))
    async with (
        FakeEmbedder(dimensions=DIMENSIONS) as active,
        FakeEmbedder(dimensions=DIMENSIONS, model="small", digest="sha256:bb") as following,
    ):
        following.salt = NEXT_SALT
        for name in names:
            bench = Workbench(talkative, active)
            bench.plan = replace(bench.plan, table=name)
            await bench.execute(
                f"INSERT INTO {name} (content) SELECT '{name[-1]} row ' || n FROM generate_series(1, 9) n"
            )
            await bench.backfill()
            swaps = SwapBench(bench, following)
            for parameters in (IndexParameters(), IndexParameters(8, 32)):
                facts = await build_index(swaps.source, name, parameters)
                assert (facts.valid, facts.ours, facts.m) == (True, True, parameters.m)
            assert (await swaps.swap(flip=False)).stage == "ready"
            assert (await swaps.swap()).stage == "flipped"
            assert await recalled(bench, following, name) == {f"{name[-1]} row {n}" for n in range(1, 10)}
            assert await models(bench, name) == ["small"]
            assert (await swaps.swap(back=True)).stage == "flipped"
    async with talkative.connection() as connection:
        for name in names:
            assert (await inspect(connection, name)).schema_differences == ""


async def recalled(bench: Workbench, embedder: FakeEmbedder, name: str) -> set[str]:
    """The texts of everybody's memories that a recall by both legs finds in the table."""
    pool = await create_pool(DsnText(bench.database.dsn), max_size=2)
    client = EmbedderClient(embedder.url, embedder.model, timeout=10)
    recall = HybridRecall(pool, client, RecallOptions(table=name, embedding_budget=5.0, time_budget=60.0))
    found = await recall.recall(make_query("row", user_id=EVERYONE, limit=50))
    await recall.close()
    await client.close()
    await pool.close()
    assert found.reason is None
    return {memory.content for memory in found.memories}


async def models(bench: Workbench, name: str) -> list[str]:
    async with bench.database.connection() as connection:
        table = await describe(connection, name)
        rows = await connection.fetch(
            f"SELECT m.name FROM {table.own('memory_index_models')} m "
            f"JOIN {table.own('memory_index_state')} s ON s.active_model = m.id"
        )
    return [row["name"] for row in rows]


async def test_each_of_two_such_tables_has_a_concept_graph_of_its_own(
    talkative: Database, request_for: Requests
) -> None:
    names = (named(63, "a"), named(63, "b"))
    connection = await connect(DsnText(talkative.dsn))
    for name in names:
        await migrate(DsnText(talkative.dsn), request_for(table=name))
        await connection.execute(f"INSERT INTO {name} (content) VALUES ('zigbee dongle'), ('zigbee bridge')")
        table = await describe(connection, name)
        assert await enable(connection, table)
        assert await fill(connection, table) == 2
    for name in names:
        table = await describe(connection, name)
        state = await graph_state(connection, table)
        assert (state.filled, state.differences, state.memories) == (True, "", 2)
        await disable(connection, table)
        assert not (await graph_state(connection, table)).exists
    await connection.close()


@pytest.mark.parametrize("length", [20, 49, 63])
async def test_what_an_interrupted_reindex_left_is_dropped_although_postgres_has_cut_its_name(
    database: Database, request_for: Requests, length: int
) -> None:
    """REINDEX CONCURRENTLY makes room for `_ccnew` at the end of the index's name."""
    source, name = DsnText(database.dsn), named(length)
    await migrate(source, request_for(table=name))
    admin = await asyncpg.connect(database.superuser_dsn)
    left = index_name(name, "embedding")[: 63 - len("_ccnew")] + "_ccnew"
    await admin.execute(f'CREATE INDEX "{left}" ON {name} USING hnsw (embedding halfvec_cosine_ops)')
    await admin.execute(f"UPDATE pg_index SET indisvalid = false WHERE indexrelid = '\"{left}\"'::regclass")
    await admin.close()
    connection = await connect(source)
    assert await drop_invalid(connection, await describe(connection, name)) == [left]
    await connection.close()


def test_names_that_are_short_enough_hold_the_tables_name() -> None:
    for name in ("memories", named(29)):
        assert own_suffix(name) == f"__{name}"
        assert index_name(name, "embedding_standby_pending") == f"idx_{name}_embedding_standby_pending"
    assert index_name(named(40), "embedding_pending") == f"idx_{named(40)}_embedding_pending"
    digest = hashlib.sha256(named(50).encode()).hexdigest()[:24]
    assert index_name(named(50), "embedding") == f"idx_{digest}_embedding"
