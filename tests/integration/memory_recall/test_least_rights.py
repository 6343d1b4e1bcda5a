"""Backfill, sync and recall work under the roles that `memory roles` prints, and nothing else does."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import asyncpg
import pytest

from memory_recall.embedding.client import EmbedderClient
from memory_recall.errors import InvalidInput
from memory_recall.graph.switching import enable
from memory_recall.hnsw.repair import IndexParameters, build_index
from memory_recall.postgres.connection import DsnText, create_pool
from memory_recall.schema.migrate import MigrationRequest, migrate
from memory_recall.schema.roles import role_script
from memory_recall.schema.table import MemoryTable, describe
from memory_recall.search.hybrid_recall import HybridRecall
from memory_recall.search.options import RecallOptions
from memory_recall.search.result import Degraded
from tests.integration.conftest import Database
from tests.integration.memory_recall.least_rights import LeastRights, least_rights, printed
from tests.integration.memory_recall.partitioned import PARTITIONED_TABLE
from tests.integration.memory_recall.queries import make_query
from tests.integration.memory_recall.workbench import Workbench

HASHES_OF_GONE_ROWS = (
    "SELECT (SELECT count(*) FROM memory_embedding_failures WHERE id = 99)"
    " + (SELECT count(*) FROM memory_supersessions WHERE undone_at IS NULL)"
)
UNREACHABLE = "http://127.0.0.1:9"  # the discard port, on which nothing listens


@pytest.fixture
async def roles(bench: Workbench) -> AsyncIterator[LeastRights]:
    """Both roles, in the bench's database, whose owner made the vector index."""
    await build_index(DsnText(bench.database.dsn), "memories", IndexParameters())
    async with least_rights(bench) as made:
        yield made


@pytest.mark.finding("L11")
async def test_a_worker_s_role_is_enough_for_backfill_and_sync(bench: Workbench, roles: LeastRights) -> None:
    """Rows that fail, that change and that turn sensitive included, and recorded hashes of rows that are gone."""
    working = replace(bench, database=roles.worker)
    await bench.insert("one", "two", "shaky")
    bench.embedder.behaviour = lambda texts: (422, {}, b"{}") if "shaky" in texts else None
    result = await working.backfill()
    assert (result.tally.embedded, result.tally.quarantined) == (2, 1)
    await bench.execute(
        "INSERT INTO memory_embedding_failures (id, text_hash, attempts, error_class, next_attempt) "
        "VALUES (99, 'of a row that is gone', 1, 'x', 'infinity'); "
        "INSERT INTO memory_supersessions (run, action, id, superseded_by, text_hash, successor_hash) "
        "VALUES (1, 'UPDATE', 98, 99, 'of a row that is gone', 'of another')"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "memory_recall", "sync",
        env={**os.environ, **working.environment()}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        await bench.insert("written while it runs")
        await bench.execute("UPDATE memories SET content = 'steady' WHERE content = 'shaky'")
        await bench.execute("UPDATE memories SET is_sensitive = true WHERE content = 'two'")
        await bench.until_embedded(3)
        await bench.until_value(HASHES_OF_GONE_ROWS, lambda count: count == 0)
    finally:
        process.terminate()
        _, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    assert b"InsufficientPrivilege" not in errors
    assert await bench.problems() == []
    recorded = await bench.value("SELECT embedder_url FROM memory_index_models")
    assert recorded == bench.embedder.url


async def test_a_recall_s_role_is_enough_for_both_legs(bench: Workbench, roles: LeastRights) -> None:
    """And for the statistics that the lexical leg of a large table reads, the journal, and waking an embedder."""
    await bench.insert("scrub the zfs pool", "the kettle")
    await bench.backfill()
    await bench.execute(
        "INSERT INTO memory_supersessions (run, action, id, superseded_by, text_hash, successor_hash) SELECT 1,"
        " 'UPDATE', o.id, n.id, memory_index_text_hash(o.content), memory_index_text_hash(n.content)"
        " FROM memories o JOIN memories n ON n.id = o.id + 1"
    )
    await bench.execute("ANALYZE memories")
    pool = await create_pool(DsnText(roles.reader.dsn))
    async with (
        pool,
        EmbedderClient(bench.embedder.url, "tiny") as embedder,
        EmbedderClient(UNREACHABLE, "tiny") as away,
    ):
        recall = HybridRecall(pool, embedder, RecallOptions(embedding_budget=5.0, time_budget=60.0))
        result = await recall.recall(make_query("scrub the zfs pool", user_id="default"))
        await recall.close()
        known = await pool.fetchval("SELECT count(*) FROM pg_stats WHERE attname = 'search_vector'")
        dead = HybridRecall(pool, away, RecallOptions(time_budget=60.0))
        assert (await dead.recall(make_query("kettle", user_id="default"))).reason is Degraded.EMBEDDER_FAILED
        await dead.close()
    assert await bench.value("SELECT wanted_at FROM memory_index_state") is not None
    assert result.reason is None
    kettle, scrub = result.memories
    assert (scrub.evidence.lexical_rank, scrub.evidence.dense_rank) == (1, 1)
    assert (scrub.superseded_by, kettle.superseded_by) == (kettle.id, None)
    assert known == 1


OF_BOTH = [
    "UPDATE memories SET content = 'x'",
    "UPDATE memories SET is_sensitive = false",
    "INSERT INTO memories (content) VALUES ('x')",
    "DELETE FROM memories",
    "TRUNCATE memories",
    "DROP TABLE memories",
    "ALTER TABLE memories DISABLE TRIGGER ALL",
    "ALTER TABLE memories DROP CONSTRAINT memory_index_no_private_embedding",
    "UPDATE memory_index_state SET active_model = 1",
    "UPDATE memory_index_models SET name = 'x'",
    "DELETE FROM memory_index_models",
    "DELETE FROM memory_index_alembic_version__memories",
    "SELECT * FROM memory_index_swaps",
    "CREATE TABLE public.mine (id int)",
    "CREATE OR REPLACE FUNCTION memory_index_guard() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
]
OF_WORKERS = [
    *OF_BOTH,
    "SELECT * FROM memories",
    "SELECT user_id FROM memories",
    "SELECT tags, expanded_keywords FROM memories",
]
OF_RECALLS = [
    *OF_BOTH,
    "UPDATE memories SET embedding = NULL",
    "SELECT * FROM memory_embedding_failures",
    "UPDATE memory_index_models SET embedder_url = 'http://evil'",
    "UPDATE memory_supersessions SET undone_at = now()",
    "INSERT INTO memory_supersessions DEFAULT VALUES",
]


@pytest.mark.finding("L11")
async def test_everything_else_is_refused(bench: Workbench, roles: LeastRights) -> None:
    """Other columns, other statements, other tables, and the rules themselves."""
    await bench.insert("one")
    for database, statements in ((roles.worker, OF_WORKERS), (roles.reader, OF_RECALLS)):
        async with database.connection() as connection:
            for statement in statements:
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await connection.execute(statement)


_ON_GONE = "AFTER DELETE ON t REFERENCING OLD TABLE AS gone FOR EACH STATEMENT"
TRIGGER_FUNCTIONS = {
    "memory_index_direction": "BEFORE INSERT ON t FOR EACH ROW",
    "memory_index_forget": _ON_GONE,
    "memory_index_forget_all": "AFTER TRUNCATE ON t FOR EACH STATEMENT",
    "memory_index_guard": "BEFORE UPDATE ON t FOR EACH ROW",
    "memory_index_guard_standby": "BEFORE INSERT ON t FOR EACH ROW",
    "memory_index_keep_columns": "BEFORE UPDATE ON t FOR EACH ROW",
    "memory_index_graph_changed": "AFTER INSERT ON t FOR EACH ROW",
    "memory_index_graph_emptied": "AFTER TRUNCATE ON t FOR EACH STATEMENT",
    "memory_index_graph_added": "BEFORE UPDATE ON t FOR EACH ROW",
}


@pytest.mark.promise("trigger-functions-unusable")
async def test_no_trigger_function_can_be_put_on_a_table_of_one_s_own(bench: Workbench, roles: LeastRights) -> None:
    """The functions run as their owner, so a temporary table with their triggers would reach what a role may not."""
    await bench.insert("one", "two")
    await bench.execute(
        "INSERT INTO memory_supersessions (run, action, id, superseded_by, text_hash, successor_hash) "
        "SELECT 1, 'UPDATE', 1, 2, 'kept', 'kept'"
    )
    async with bench.database.connection() as connection:
        await enable(connection, await describe(connection, "memories"))
        existing = await connection.fetch(
            "SELECT proname FROM pg_proc WHERE prorettype = 'trigger'::regtype AND proname LIKE 'memory_index%'"
        )
    assert {row["proname"] for row in existing} == set(TRIGGER_FUNCTIONS)
    for database in (roles.worker, roles.reader):
        async with database.connection() as connection:
            await connection.execute("CREATE TEMP TABLE t (id bigint, memory_id bigint, content text)")
            for function, firing in TRIGGER_FUNCTIONS.items():
                with pytest.raises(asyncpg.InsufficientPrivilegeError, match=f"function .*{function}$"):
                    await connection.execute(f"CREATE TRIGGER t {firing} EXECUTE FUNCTION public.{function}()")
            await connection.execute("INSERT INTO t (id) VALUES (1); DELETE FROM t; TRUNCATE t")
    assert await bench.value("SELECT text_hash FROM memory_supersessions") == "kept"


WRITING = (
    ("INSERT INTO {} (content) VALUES ('one'), ('two')", (2, 0, 2)),
    ("UPDATE {} SET embedding = array_fill(0.5::real, ARRAY[8])::halfvec", (2, 2, 2)),
    ("UPDATE {} SET content = 'edited' WHERE content = 'one'", (2, 1, 1)),
    ("DELETE FROM {} WHERE content = 'two'", (1, 0, 0)),
)


@pytest.mark.parametrize("name", ["memories", "memories_ada"])
async def test_the_rules_hold_for_a_role_that_only_writes_memories(
    database: Database, request_for: Callable[..., MigrationRequest], name: str
) -> None:
    """It needs no right on our functions, also where it names a partition; (rows, vectors, failures) tell."""
    admin = await asyncpg.connect(database.superuser_dsn)
    writer = f"{database.name}_writer"
    async with database.connection() as connection:
        for statement in PARTITIONED_TABLE if name != "memories" else ():
            await connection.execute(statement)
    await migrate(DsnText(database.dsn), request_for())
    try:
        await admin.execute(
            f"CREATE ROLE {writer}; GRANT USAGE ON memories_id_seq TO {writer};"
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON {name} TO {writer}"
        )
        for statement, expected in WRITING:
            await admin.execute(f"SET ROLE {writer}; {statement.format(name)}; RESET ROLE")
            if statement.startswith("INSERT"):
                await admin.execute(
                    "INSERT INTO memory_embedding_failures (id, text_hash, attempts, error_class, next_attempt)"
                    " SELECT id, memory_index_text_hash(content), 5, 'x', 'infinity' FROM memories"
                )
            counts = "SELECT count(*), count(embedding), (SELECT count(*) FROM memory_embedding_failures) FROM memories"
            assert tuple(await admin.fetchrow(counts) or ()) == expected
    finally:
        await admin.execute(f"DROP OWNED BY {writer}; DROP ROLE {writer}")
        await admin.close()


TYPES_OF_THE_WRITER = (
    """CREATE FUNCTION pg_temp.taken(pg_catalog.text) RETURNS boolean LANGUAGE plpgsql
        AS $$BEGIN RAISE EXCEPTION 'called as %', current_user; END$$""",
    "CREATE DOMAIN pg_temp.text AS pg_catalog.text CHECK (pg_temp.taken(VALUE))",
)


@pytest.mark.promise("rules-call-nothing-of-writers")
async def test_no_rule_calls_a_function_by_a_type_in_the_temporary_schema_of_whoever_writes(
    database: Database, request_for: Callable[..., MigrationRequest]
) -> None:
    """The functions of the rules run as their owner, and so would whatever a domain called `text` checks."""
    admin = await asyncpg.connect(database.superuser_dsn)
    writer = f"{database.name}_writer"
    async with database.connection() as connection:
        await connection.execute(
            "CREATE TABLE memories (id text PRIMARY KEY, content varchar, is_sensitive boolean DEFAULT false, "
            "deleted_at timestamptz)"
        )
        await migrate(DsnText(database.dsn), request_for())
        await enable(connection, await describe(connection, "memories"))
    try:
        await admin.execute(f"CREATE ROLE {writer}; GRANT SELECT, INSERT, UPDATE, DELETE ON memories TO {writer}")
        await admin.execute(f"SET ROLE {writer}")
        for statement in TYPES_OF_THE_WRITER:
            await admin.execute(statement)
        await admin.execute("INSERT INTO memories (id, content) VALUES ('a', 'The kettle'), ('b', 'Der Kessel: é')")
        await admin.execute("UPDATE memories SET embedding = NULL")
        await admin.execute("UPDATE memories SET content = 'The stove' WHERE id = 'a'")
        await admin.execute("UPDATE memories SET is_sensitive = true WHERE id = 'a'")
        await admin.execute("DELETE FROM memories")
    finally:
        await admin.execute(f"RESET ROLE; DROP OWNED BY {writer} CASCADE; DROP ROLE {writer}")
        await admin.close()


async def test_the_table_s_owner_adds_partitions_although_another_role_has_migrated_it(
    database: Database, request_for: Callable[..., MigrationRequest]
) -> None:
    """Postgres copies the triggers to a new partition only if its creator may execute their functions."""
    async with database.connection() as connection:
        for statement in PARTITIONED_TABLE:
            await connection.execute(statement)
    await migrate(DsnText(database.superuser_dsn), request_for())
    async with database.connection() as connection:
        await connection.execute("CREATE TABLE memories_eve PARTITION OF memories FOR VALUES IN ('eve')")
        await connection.execute("INSERT INTO memories (content, is_sensitive, user_id) VALUES ('x', true, 'eve')")


@pytest.mark.parametrize("worker", ["", "x" * 64, "two\nlines", "reader"])
def test_what_is_no_name_of_a_role_is_refused(worker: str) -> None:
    """Postgres would cut a long one, and a line break would end the script's comment."""
    table = MemoryTable("public", "memories", {"id": "integer"}, "public", 8)
    with pytest.raises(InvalidInput, match="no names of two roles"):
        role_script(table, worker=worker, reader="reader")


async def test_the_script_refuses_the_owner_and_revokes_what_a_role_has_beyond_it(
    bench: Workbench, roles: LeastRights
) -> None:
    """Revoking from the owner would lock the owner out; a role from before may have had more."""
    admin = await asyncpg.connect(bench.database.superuser_dsn)
    with pytest.raises(asyncpg.RaiseError, match="owns the table"):
        await admin.execute(await printed(bench, "--worker", "app"))
    worker = f"{bench.database.name}_worker"
    await admin.execute(f"GRANT ALL ON memories, memory_index_state TO {worker}")
    await admin.execute(await printed(bench, "--worker", worker, "--recall", f"{bench.database.name}_reader"))
    await admin.close()
    async with roles.worker.connection() as connection:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute("DELETE FROM memories")


@pytest.mark.finding("L6")
async def test_the_roles_keep_memories_and_queries_out_of_postgres_s_own_log(
    own_bench: Workbench,
) -> None:
    """L6: neither the values of parameters nor a row that a constraint refuses; the owner's statements show both."""
    bench, log = own_bench, own_bench.database.server.log
    admin = await asyncpg.connect(bench.database.superuser_dsn)
    await admin.execute("ALTER SYSTEM SET log_min_duration_statement = 0")
    await admin.execute("SELECT pg_reload_conf()")
    await bench.insert("a secret that nobody embeds")
    vector = "array_fill(0.5::real, ARRAY[8])::halfvec"
    async with least_rights(bench) as roles:
        await bench.execute("ALTER TABLE memories DISABLE TRIGGER ALL")
        await bench.execute("UPDATE memories SET is_sensitive = true")
        for database, word in ((roles.worker, "quiet"), (bench.database, "loud")):
            async with database.connection() as connection:
                begun = len(log.read_text())
                await connection.fetch("SELECT id FROM memories WHERE content = $1", f"{word}-CANARY")
                with pytest.raises(asyncpg.CheckViolationError):
                    await connection.execute(f"UPDATE memories SET embedding = {vector}")
                written = log.read_text()[begun:]
            assert "WHERE content = $1" in written, "statements are logged"
            assert (f"{word}-CANARY" in written) is (word == "loud")
            assert ("nobody embeds" in written) is (word == "loud")
    await admin.close()
