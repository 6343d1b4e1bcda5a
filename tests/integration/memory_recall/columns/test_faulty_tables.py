"""A table that cannot be used is refused before anything is changed, all faults in one message, and shown by status."""

import asyncio
import json
from collections.abc import Callable

import pytest

from memory_recall.errors import SchemaUnsupported
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.migrate import MigrationRequest, migrate
from memory_recall.schema.requirements.faults import messages
from memory_recall.status import inspect
from tests.integration.conftest import Database
from tests.support.invoked_command import invoke_memory

Requests = Callable[..., MigrationRequest]
GENERATED = """
CREATE TABLE notes (
    id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, body text, visibility text NOT NULL DEFAULT 'public',
    archived boolean NOT NULL DEFAULT false, content text GENERATED ALWAYS AS (body) STORED,
    is_sensitive boolean GENERATED ALWAYS AS (visibility <> 'public') {virtual},
    deleted_at timestamptz GENERATED ALWAYS AS (CASE WHEN archived THEN '2000-01-01 00:00+00'::timestamptz END) STORED)
"""
MISSING = "CREATE TABLE notes (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), body text, created timestamptz)"
WRONG = """
CREATE TABLE notes (
    id bigint, content bytea, is_sensitive text, deleted_at timestamptz DEFAULT now() NOT NULL, search_vector text,
    user_id jsonb, category integer, tags text[], importance text, created_at double precision, updated_at date,
    embedding vector(384))
"""
VIEW = "CREATE TABLE real_notes (id bigint PRIMARY KEY, content jsonb); CREATE VIEW notes AS TABLE real_notes"
_EVERYTHING = """
SELECT string_agg(name, ' ' ORDER BY name) FROM (
    SELECT c.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod) AS name
      FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid WHERE c.relnamespace = 'public'::regnamespace
       AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL SELECT tgname FROM pg_trigger
    UNION ALL SELECT proname FROM pg_proc WHERE proname LIKE 'memory%') found
"""


@pytest.mark.parametrize(
    ("made", "named"),
    [
        (GENERATED.format(virtual="STORED"), ["content", "is_sensitive", "deleted_at"]),
        (GENERATED.format(virtual="VIRTUAL"), ["content", "is_sensitive", "deleted_at"]),
        (MISSING, ["content", "is_sensitive", "deleted_at"]),
        (
            WRONG,
            [
                "content", "is_sensitive", "deleted_at", "NOT NULL", "search_vector", "user_id", "category", "tags",
                "importance", "created_at", "updated_at", "embedding", "No index makes the id",
            ],
        ),
        (VIEW, ["is not a table", "content", "is_sensitive", "deleted_at"]),
    ],
    ids=["generated", "virtual", "missing", "wrong", "view"],
)  # fmt: skip
@pytest.mark.finding("database F7")
@pytest.mark.finding("database F10")
@pytest.mark.finding("database F15")
@pytest.mark.finding("security L7")
async def test_all_faults_are_named_and_nothing_is_changed(
    database: Database, request_for: Requests, made: str, named: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with database.connection() as connection:
        await connection.execute(made)
        before = await connection.fetchval(_EVERYTHING)
        with pytest.raises(SchemaUnsupported) as refused:
            await migrate(DsnText(database.dsn), request_for(table="notes"))
        assert await connection.fetchval(_EVERYTHING) == before
        found = await inspect(connection, "notes")
    assert all(name in refused.value.message for name in named), refused.value.message
    assert messages(found.faults) == refused.value.message
    assert not found.schema_current
    assert "memory API" not in str(refused.value)
    for name, value in {"DATABASE_URL": database.dsn, "TABLE": "notes"}.items():
        monkeypatch.setenv(f"MEMORY_{name}", value)
    for_people, shown = [
        await asyncio.to_thread(invoke_memory, arguments) for arguments in (["status"], ["status", "--json"])
    ]
    assert (for_people.exit_code, shown.exit_code) == (0, 0), (for_people.stderr, shown.stderr)
    assert named[0] in for_people.stdout
    assert [fault["message"] for fault in json.loads(shown.stdout)["faults"]] == [one.message for one in found.faults]


async def test_the_statements_of_the_message_make_the_table_usable(database: Database, request_for: Requests) -> None:
    made = "CREATE TABLE notes (id bigint PRIMARY KEY, body text, importance text, tags text[], created_at bigint)"
    async with database.connection() as connection:
        await connection.execute(made)
        await connection.execute("INSERT INTO notes VALUES (1, 'x', '0.5', '{a,b}', 1767225600)")
        for fault in (await inspect(connection, "notes")).faults:
            await connection.execute(fault.remedy.partition("; Or ")[0])
        await migrate(DsnText(database.dsn), request_for(table="notes"))
        found = await inspect(connection, "notes")
        row = await connection.fetchrow("SELECT importance, tags, created_at::date::text AS day FROM notes")
    assert found.schema_current
    assert row is not None
    assert tuple(row) == (0.5, "a,b", "2026-01-01")
