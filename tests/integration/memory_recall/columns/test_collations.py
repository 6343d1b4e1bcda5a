"""Texts under a nondeterministic collation are indexed like others, and every change of them is noticed.

Only ICU has such collations, and the Postgres of these tests is built without it. So one of the C library is recorded
as nondeterministic. Up to version 17 Postgres then refuses what it refuses under one of ICU, later it does not.
"""

from collections.abc import Callable

import asyncpg
import pytest

from memory_recall.contrib.curation.candidates_sql import read_frequencies
from memory_recall.graph import enable
from memory_recall.graph.definition import differences as graph_differences
from memory_recall.indexing.words_sql import fill_words
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.adoption.observations_sql import (
    looking,
    observe_database,
    observe_table,
    observe_texts,
)
from memory_recall.schema.columns.names import ColumnNames
from memory_recall.schema.migrate import MigrationRequest, migrate
from memory_recall.schema.table import describe
from memory_recall.status import inspect
from tests.integration.conftest import Database

NONDETERMINISTIC = (
    "CREATE COLLATION public.alike (provider = libc, locale = 'C.UTF-8')",
    "SET allow_system_table_mods = on",
    "UPDATE pg_collation SET collisdeterministic = false WHERE collname = 'alike'",
)
TABLE = (
    "CREATE TABLE notes (id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, title {kind} COLLATE alike, "
    "content {kind} COLLATE alike, tags {kind} COLLATE alike, created_at timestamptz DEFAULT now())"
)
SOURCES = {"one column": "content", "two columns": ["title", "content"]}
EXACT = (
    "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'notes'::regclass AND pg_get_triggerdef(oid) ~ "
    r"""'new\.content\)?(::text)? COLLATE "C"\) IS DISTINCT FROM'"""
)


@pytest.mark.parametrize("kind", ["text", "varchar"])
@pytest.mark.parametrize("sources", SOURCES)
async def test_texts_under_a_nondeterministic_collation_are_written_filled_and_looked_at(
    database: Database, request_for: Callable[..., MigrationRequest], kind: str, sources: str
) -> None:
    """Postgres refuses regular expressions under it, and the user's own writes where a trigger of ours uses them."""
    admin = await asyncpg.connect(database.superuser_dsn)
    for statement in NONDETERMINISTIC:
        await admin.execute(statement)
    await admin.close()
    names = ColumnNames.parse({"content": SOURCES[sources], "deleted_at": ""}, all_public=True)
    async with database.connection() as connection:
        await connection.execute(TABLE.format(kind=kind))
        await connection.execute("INSERT INTO notes (content, tags) VALUES ('Äpfel und Birnen', 'obst,körbe')")
        await migrate(DsnText(database.dsn), request_for(table="notes", columns=names))
        table = await describe(connection, "notes")
        await enable(connection, table)
        assert await fill_words(connection, table) == 1
        await connection.execute("INSERT INTO notes (content, tags) VALUES ('Käse', 'obst'), ('梨', 'körbe')")
        await connection.execute("UPDATE notes SET content = 'Äpfel und Käse' WHERE id = 1")
        words = "SELECT array_agg(id ORDER BY id) FROM notes WHERE memory_search_vector @@ 'kase'"
        assert await connection.fetchval(words) == [1, 2]
        assert (await inspect(connection, "notes")).schema_current
        assert await graph_differences(connection, table) == ""
        assert await connection.fetchval(EXACT) == 3, "the triggers of vectors, words and links"
        async with looking(connection):
            encoding = (await observe_database(connection)).encoding
            seen = await observe_table(connection, table)
            assert (await observe_texts(connection, table, seen, encoding, None)).scripts == {"Latin": 2, "Han": 1}
        await connection.execute("UPDATE notes SET embedding = array_fill(0.5::real, ARRAY[8])::halfvec")
        counted = await read_frequencies(connection, table, user=None, links=False)
        assert counted.tags == {"obst": 2, "körbe": 2}
