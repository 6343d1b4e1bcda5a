"""No statement of the operator reads a memory's text: it observes just as well as a role that must not read any."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from memory_operator.clients.database import DatabaseClient
from memory_recall.embedding.profiles import ModelProfile
from memory_recall.embedding.served_model import ServedModel
from memory_recall.graph import enable
from memory_recall.hnsw.repair import IndexParameters, build_index
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.migrate import MigrationRequest, migrate
from memory_recall.schema.revisions import require_schema
from memory_recall.status import DatabaseFacts
from memory_recall.swap import state_sql
from tests.integration.conftest import CopyOf, Database
from tests.unit.memory_operator.conftest import anywhere

MIGRATIONS = Path(__file__).resolve().parents[3] / "migrations"
REQUEST = MigrationRequest("memories", ModelProfile("tiny", 8, 256, "mean"), MIGRATIONS)
TEXTS = ("content", "expanded_keywords", "tags", "search_vector")
ROWS = """
INSERT INTO memories (content, is_sensitive, deleted_at) VALUES
    ('ordinary', false, NULL), ('quarantined', false, NULL), ('sensitive', true, NULL), ('deleted', false, now());
INSERT INTO memory_embedding_failures (id, text_hash, attempts, error_class, next_attempt)
SELECT id, memory_index_text_hash(content), 5, 'EmbedderRejected', 'infinity' FROM memories
 WHERE content = 'quarantined';
"""
_SENT = re.compile(r"(?:statement|execute [^:]*|LOG:  duration): (.*?)(?=\n\d{4}-\d\d-\d\d |\Z)", re.DOTALL)


@pytest.fixture
async def database(copy_of: CopyOf) -> Database:
    """A migrated database with a row of each kind."""

    async def fill(empty: Database) -> None:
        await migrate(DsnText(empty.dsn), REQUEST)
        async with empty.connection() as connection:
            await connection.execute(ROWS)

    return await copy_of("a row of each kind for the operator", fill)


async def migrated(_database: Database) -> None: ...


async def indexed(database: Database) -> None:
    await build_index(DsnText(database.dsn), "memories", IndexParameters())


async def swapping(database: Database) -> None:
    await indexed(database)
    async with database.connection() as connection:
        table = await require_schema(connection, "memories")
        await state_sql.open_swap(connection, table, ServedModel("next", 4), "http://next:8080")
        swap = await state_sql.latest(connection, table)
        assert swap is not None
        await state_sql.add_column(connection, table, swap, give_up_after=10)


async def with_graph(database: Database) -> None:
    async with database.connection() as connection:
        await enable(connection, await require_schema(connection, "memories"))


@pytest.fixture
async def observer(database: Database) -> AsyncIterator[Callable[[], Awaitable[Database]]]:
    """Makes a role that may read everything of the schema but texts; its statements are in the server's log."""
    admin = await asyncpg.connect(database.superuser_dsn)
    name = f"{database.name}_observer"

    async def make() -> Database:
        await admin.execute(
            f"CREATE ROLE {name} LOGIN PASSWORD 'observer'; ALTER ROLE {name} SET log_statement = 'all'"
        )
        await admin.execute(
            f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {name}; REVOKE ALL ON memories FROM {name}"
        )
        columns = await admin.fetchval(
            "SELECT string_agg(quote_ident(attname), ', ') FROM pg_attribute "
            "WHERE attrelid = 'memories'::regclass AND attnum > 0 AND NOT attisdropped AND attname <> ALL ($1)",
            TEXTS,
        )
        await admin.execute(f"GRANT SELECT ({columns}) ON memories TO {name}")
        return replace(database, dsn=f"postgresql://{name}:observer@{database.dsn.rpartition('@')[2]}")

    yield make
    await admin.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")
    await admin.close()


@pytest.mark.promise("operator-reads-no-text")
@pytest.mark.parametrize("state", [migrated, indexed, swapping, with_graph])
async def test_the_operator_observes_without_the_right_to_read_texts(
    database: Database, observer: Any, state: Callable[[Database], Awaitable[None]]
) -> None:
    """The database proves it: the facts are the owner's, and the role is refused a text. No statement names one."""
    await state(database)
    role = await observer()
    begun = len(database.server.log.read_text())
    facts = (await DatabaseClient(anywhere).inspect(DsnText(role.dsn), "memories", "team")).found
    sent = _SENT.findall(database.server.log.read_text()[begun:])
    assert isinstance(facts, DatabaseFacts), facts
    assert facts == (await DatabaseClient(anywhere).inspect(DsnText(database.dsn), "memories", "team")).found
    assert (facts.schema_current, facts.rows.quarantined, facts.rows.sensitive) == (True, 1, 1)
    assert sum("memories" in statement for statement in sent) > 1
    named = re.compile(rf"\b({'|'.join(TEXTS)})\b")
    assert [statement for statement in sent if named.search(statement)] == []
    async with role.connection() as connection:
        for column in TEXTS:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.fetch(f"SELECT {column} FROM memories")
