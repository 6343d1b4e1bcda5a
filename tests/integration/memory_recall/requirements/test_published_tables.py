"""A table that a publication publishes keeps its updates and its subscribers, or it is said what they need."""

import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from memory_recall.errors import SchemaUnsupported
from memory_recall.graph import GraphState, disable, graph_state, pause
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.migrate import MigrationRequest, migrate
from memory_recall.status import inspect
from tests.integration.conftest import Database
from tests.integration.memory_recall.graph.workbench import enabled
from tests.integration.memory_recall.logical_replication import replicating
from tests.integration.memory_recall.workbench import Workbench

Requests = Callable[..., MigrationRequest]

PAGE = Path(__file__).resolve().parents[4] / "docs" / "database.md"
_TABLE = (
    "CREATE TABLE memories (id bigint NOT NULL{key}, user_id text NOT NULL DEFAULT 'ana', content text,"
    " is_sensitive boolean NOT NULL DEFAULT false, deleted_at timestamptz){more}; {then};"
    " INSERT INTO memories VALUES (1)"
)
_UNIQUE = "CREATE UNIQUE INDEX ids ON memories (id)"
_DROPPED = (
    "CREATE UNIQUE INDEX other ON memories (id); ALTER TABLE memories REPLICA IDENTITY USING INDEX other;"
    " DROP INDEX other"
)
_PARTITION = "CREATE TABLE ana PARTITION OF memories FOR VALUES IN ('ana'); CREATE INDEX ON memories (id)"
_WITHOUT_IDENTITY = {
    "no primary key": ("", "", _UNIQUE),
    "a primary key that is deferrable": (" PRIMARY KEY DEFERRABLE", "", _UNIQUE),
    "an identity that was dropped": ("", "", f"{_UNIQUE}; {_DROPPED}"),
    "told to have none": (" PRIMARY KEY", "", "ALTER TABLE memories REPLICA IDENTITY NOTHING"),
    "a partition": ("", " PARTITION BY LIST (user_id)", _PARTITION),
}


@pytest.fixture
async def superuser(database: Database) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    connection = await asyncpg.connect(database.superuser_dsn)
    yield connection
    await connection.close()


@pytest.mark.parametrize("kind", _WITHOUT_IDENTITY)
async def test_a_published_table_without_replica_identity_is_refused_with_the_statement_that_gives_it_one(
    database: Database, superuser: Any, request_for: Requests, kind: str
) -> None:
    key, more, then = _WITHOUT_IDENTITY[kind]
    async with database.connection() as connection:
        await connection.execute(_TABLE.format(key=key, more=more, then=then))
    await superuser.execute("CREATE PUBLICATION everything FOR ALL TABLES")
    with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError):
        await superuser.execute("UPDATE memories SET content = 'of its own writer'")
    with pytest.raises(SchemaUnsupported, match="has no replica identity") as refused:
        await migrate(DsnText(database.dsn), request_for())
    statement = re.search(r"ALTER TABLE .* REPLICA IDENTITY FULL;", refused.value.remedy)
    assert statement is not None
    async with database.connection() as connection:
        facts = await inspect(connection, "memories")
        assert [fault.message for fault in facts.faults] == [refused.value.message]
        await connection.execute(statement.group())
        await connection.execute("UPDATE memories SET content = 'of its own writer'")
    assert (await migrate(DsnText(database.dsn), request_for())).applied


async def test_a_table_of_which_no_update_is_published_needs_no_replica_identity(
    database: Database, superuser: Any, request_for: Requests
) -> None:
    async with database.connection() as connection:
        await connection.execute(_TABLE.format(key="", more="", then=_UNIQUE))
    await superuser.execute("CREATE PUBLICATION added FOR ALL TABLES WITH (publish = 'insert')")
    await migrate(DsnText(database.dsn), request_for())
    async with database.connection() as connection:
        await connection.execute("UPDATE memories SET content = 'of its own writer'")


async def test_an_unlogged_table_is_published_by_nobody(
    database: Database, superuser: Any, request_for: Requests
) -> None:
    async with database.connection() as connection:
        await connection.execute(_TABLE.format(key="", more="", then=_UNIQUE).replace("TABLE", "UNLOGGED TABLE", 1))
    await superuser.execute("CREATE PUBLICATION everything FOR ALL TABLES")
    await migrate(DsnText(database.dsn), request_for())


async def test_backfill_and_graph_do_their_work_where_all_tables_are_published(bench: Workbench) -> None:
    """Postgres refuses updates and deletions of any published table that has no replica identity, ours included."""
    superuser = await asyncpg.connect(bench.database.superuser_dsn)
    await superuser.execute("CREATE PUBLICATION everything FOR ALL TABLES")
    await superuser.close()
    table = await enabled(bench, "Marit restarted nas-01.", "Kestrel Lane floods.")
    bench.embedder.unusable = lambda text: "floods" in text
    await bench.backfill()
    assert await bench.embedded() == 1
    async with bench.database.connection() as connection:
        assert (await graph_state(connection, table)).filled
        await pause(connection, table)
        await disable(connection, table)
        assert await graph_state(connection, table) == GraphState()


async def test_a_subscriber_goes_on_where_the_documented_statement_has_named_the_columns_before_the_migration(
    bare_database: Database, database: Database, request_for: Requests
) -> None:
    """Without it, the subscription stops with an error at the next change, since it lacks our columns."""
    (statement,) = re.findall(r"(?s)```sql\n(BEGIN;\nALTER PUBLICATION .*?)```", PAGE.read_text(encoding="utf-8"))
    create = _TABLE.format(key=" PRIMARY KEY", more="", then="")
    for one in (bare_database, database):
        async with one.connection() as connection:
            await connection.execute(create)
    async with replicating(database, bare_database, "memories") as replication:
        name = await replication.publisher.fetchval("SELECT pubname FROM pg_publication")
        await replication.publisher.execute(statement.replace("reports", name))
        await migrate(DsnText(database.dsn), request_for())
        await replication.publisher.execute("UPDATE memories SET content = 'another text'")
        await replication.catch_up()
        assert await replication.subscriber.fetchval("SELECT content FROM memories") == "another text"
