"""Functions and operators that others have made in a schema of the search path are not called in place of Postgres's.

A function goes before Postgres's own if it takes an argument's very type, where Postgres's takes one that the argument
is converted to. Here each such function raises an error, wherever Postgres has one that takes `text`, and so does each
operator of the names of the catalog's objects, such as `regclass`, of which Postgres compares the numbers.
"""

from collections.abc import Callable

import asyncpg
import pytest

from memory_recall.graph import enable
from memory_recall.hnsw.repair import IndexParameters, build_index
from memory_recall.indexing.queue_sql import first_with_text
from memory_recall.indexing.warming_sql import searched_relations
from memory_recall.postgres.connection import DsnText, create_pool
from memory_recall.schema.adoption.observations_sql import looking, observe_database, observe_table, observe_texts
from memory_recall.schema.migrate import MigrationRequest, migrate
from memory_recall.schema.requirements.reading import has_row_security
from memory_recall.schema.roles import role_script
from memory_recall.schema.supersessions import has_links
from memory_recall.schema.table import describe
from memory_recall.search.hybrid_recall import HybridRecall
from memory_recall.search.options import RecallOptions
from memory_recall.search.sql.embedder_demand import record_demand
from memory_recall.status import inspect
from memory_recall.swap.state_sql import standby_queue_indexed
from memory_recall.transfer.rows_sql import is_key, longest_texts
from tests.integration.conftest import Database
from tests.integration.memory_recall.fake_embedder import FakeEmbedder
from tests.integration.memory_recall.graph.workbench import fill
from tests.integration.memory_recall.partitioned import PARTITIONED_TABLE
from tests.integration.memory_recall.queries import make_query
from tests.integration.memory_recall.workbench import DIMENSIONS, Workbench

_BODY = "LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''called''; END'"
_OVERLOADS = """
DO LANGUAGE plpgsql $$
DECLARE found record;
BEGIN
    FOR found IN
        SELECT p.proname, CASE WHEN p.proretset THEN 'SETOF ' ELSE '' END || format_type(p.prorettype, NULL) AS result,
               array_to_string(ARRAY(SELECT CASE type WHEN 'text'::regtype THEN '{kind}'
                                                      ELSE format_type(type, NULL) END
                                       FROM unnest(p.proargtypes::oid[]) AS type), ', ') AS arguments
          FROM pg_proc p
         WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f' AND p.provariadic = 0
           AND 'text'::regtype = ANY (p.proargtypes::oid[])
           AND NOT p.proargtypes::oid[] || p.prorettype
               && ARRAY['internal', 'cstring', '"any"', 'record']::regtype[]::oid[]
    LOOP
        BEGIN
            EXECUTE format('CREATE FUNCTION public.%I(%s) RETURNS %s {body}', found.proname, found.arguments,
                           found.result);
        EXCEPTION WHEN duplicate_function THEN
            NULL;
        END;
    END LOOP;
END $$"""


def overloads(kind: str) -> str:
    """Return a statement that makes a function of this type for each of Postgres's that takes `text`."""
    return _OVERLOADS.format(kind=kind, body=_BODY.replace("'", "''"))


def function(name: str, arguments: str, returns: str) -> str:
    return f"CREATE FUNCTION public.{name}({arguments}) RETURNS {returns} {_BODY}"


def operators(kind: str) -> tuple[str, ...]:
    """Return statements that make the operators by which values of this type are compared, also with numbers."""
    compared = [(kind, kind), (kind, "oid"), ("oid", kind)]
    return tuple(
        statement
        for left, right in compared
        for statement in (
            function("compared", f"{left}, {right}", "boolean"),
            *(
                f"CREATE OPERATOR public.{sign} (LEFTARG = {left}, RIGHTARG = {right}, FUNCTION = public.compared)"
                for sign in ("=", "<>")
            ),
        )
    )


OF_OBJECTS = tuple(
    statement for kind in ("regclass", "regtype", "regproc", "regnamespace", "regrole") for statement in operators(kind)
)
_FORMATTED = ("name", "text, name", "name, name", "name, text", "text, text", "text, regrole")
OF_NAMES = (overloads("name"), *(function("format", f"text, {arguments}", "text") for arguments in _FORMATTED))
OF_QUERIES = (
    function("to_tsvector", "text, text", "tsvector"),
    function("plainto_tsquery", "text, text", "tsquery"),
)
CHARACTER_VARYING = (
    "CREATE TABLE memories (id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, content varchar, tags varchar, "
    "is_sensitive boolean DEFAULT false, deleted_at timestamptz, "
    "search_vector tsvector GENERATED ALWAYS AS (to_tsvector('english', content)) STORED)"
)


async def make_functions(database: Database, statements: tuple[str, ...]) -> None:
    """Make them as another role would that may create functions in a schema of everybody's path."""
    admin = await asyncpg.connect(database.superuser_dsn)
    try:
        for statement in statements:
            await admin.execute(statement)
    finally:
        await admin.close()


@pytest.mark.parametrize("partitioned", [False, True], ids=["ordinary", "partitioned"])
async def test_whoever_migrates_and_whoever_compares_the_rules_calls_no_function_of_others(
    database: Database, request_for: Callable[..., MigrationRequest], partitioned: bool
) -> None:
    """The catalog's names have the type `name`, which almost no function of Postgres takes."""
    await make_functions(database, (*OF_NAMES, *OF_OBJECTS))
    async with database.connection() as connection:
        for statement in PARTITIONED_TABLE if partitioned else ():
            await connection.execute(statement)
        await migrate(DsnText(database.dsn), request_for())
        await build_index(DsnText(database.dsn), "memories", IndexParameters())
        table = await describe(connection, "memories")
        if not partitioned:
            await enable(connection, table)
        await migrate(DsnText(database.dsn), request_for())
        facts = await inspect(connection, "memories")
        assert facts.schema_current
        assert facts.index.valid


async def test_whoever_adopts_imports_and_warms_calls_no_function_of_others(migrated: Database) -> None:
    await make_functions(migrated, (*OF_NAMES, *OF_OBJECTS))
    async with migrated.connection() as connection:
        table = await describe(connection, "memories")
        async with looking(connection):
            encoding = (await observe_database(connection)).encoding
            seen = await observe_table(connection, table)
            await observe_texts(connection, table, seen, encoding, None)
        assert seen.primary_key == ("id",)
        assert await is_key(connection, table, "memories_pkey")
        assert await longest_texts(connection, table)
        assert not await has_links(connection, table)
        assert not await has_row_security(connection, table)
        assert not await standby_queue_indexed(connection, table)
        await record_demand(connection, table)
        assert await searched_relations(connection, table)


async def test_the_script_of_roles_calls_no_function_of_others(migrated: Database) -> None:
    """A superuser runs it."""
    await make_functions(migrated, (*OF_NAMES, *OF_OBJECTS))
    async with migrated.connection() as connection:
        table = await describe(connection, "memories")
    worker, reader = f"{migrated.name}_worker", f"{migrated.name}_reader"
    script = role_script(table, worker=worker, reader=reader)
    await make_functions(migrated, (script, f"DROP OWNED BY {worker}, {reader}; DROP ROLE {worker}, {reader}"))


@pytest.mark.parametrize("lexical", ["bm25", "ts_rank"])
async def test_a_recall_has_its_query_parsed_by_no_function_of_others(bench: Workbench, lexical: str) -> None:
    """The function would be given each prompt."""
    await bench.insert("the kettle boils")
    await make_functions(bench.database, (*OF_NAMES, *OF_QUERIES, *OF_OBJECTS))
    pool = await create_pool(DsnText(bench.database.dsn), max_size=2)
    async with pool:
        recall = HybridRecall(pool, None, RecallOptions(lexical=lexical, time_budget=60))  # type: ignore[arg-type]
        result = await recall.recall(make_query("kettle"))
        await recall.close()
    assert [memory.content for memory in result.memories] == ["the kettle boils"]


async def test_a_worker_gives_no_text_to_a_function_of_others(
    database: Database, request_for: Callable[..., MigrationRequest]
) -> None:
    """Postgres has no functions of `varchar`, so a text of this type fits those of others better."""
    async with database.connection() as connection:
        await connection.execute(CHARACTER_VARYING)
        await migrate(DsnText(database.dsn), request_for())
        table = await describe(connection, "memories")
        await enable(connection, table)
        await make_functions(database, (overloads("character varying"), *OF_OBJECTS))
        await connection.execute("INSERT INTO memories (content, tags) VALUES ('the kettle boils', 'kitchen')")
        assert [row.text for row in await first_with_text(connection, table, 1)] == ["the kettle boils"]
        assert await fill(connection, table) == 1
    async with FakeEmbedder(dimensions=DIMENSIONS) as embedder:
        bench = Workbench(database, embedder)
        await bench.backfill()
        assert await bench.embedded() == 1
