"""A table that cannot be adopted is named with everything that is wrong, at the first look, with what mends each."""

import json
from collections.abc import Awaitable, Callable

import pytest
from typer.testing import Result

from memory_recall.schema.requirements import server_version
from tests.integration.conftest import Database
from tests.support.bad_tables import BAD_TABLES, BadTable

Run = Callable[..., Awaitable[Result]]


def said_of(output: str) -> str:
    """Return what a plan as JSON says is undecided or at fault, each with its remedy."""
    plan = json.loads(output)
    return " ".join(f"{one['message']} {one['remedy']}" for one in (*plan["questions"], *plan["faults"]))


@pytest.mark.finding("database F10")
@pytest.mark.finding("database F15")
@pytest.mark.parametrize("bad", BAD_TABLES, ids=lambda bad: bad.name)
async def test_everything_that_is_wrong_with_a_table_is_said_at_once(
    bad: BadTable, database: Database, adopt: Run
) -> None:
    async with database.connection() as connection:
        await connection.execute(bad.create)
    done = await adopt("notes", *bad.options, "--json")
    assert done.exit_code == 4, done.output
    said = said_of(done.stdout)
    assert [part for part in bad.named if part not in said] == [], said


@pytest.mark.finding("database F10")
async def test_apply_refuses_a_table_with_faults_and_questions_in_one_message(database: Database, adopt: Run) -> None:
    async with database.connection() as connection:
        await connection.execute("CREATE TABLE notes (id bigint, body text, note text, deleted_at date)")
    done = await adopt("notes", "--apply", "--fillfactor", "80", "--json")
    assert (done.exit_code, json.loads(done.stderr)["reason"]) == (4, "SchemaUnsupported")
    said = json.loads(done.stderr)["message"]
    for part in ("body and note are equally likely", "--no-sensitive", "deleted_at of", "unique by itself"):
        assert part in said
    async with database.connection() as connection:
        assert await connection.fetchval("SELECT reloptions FROM pg_class WHERE relname = 'notes'") is None


async def test_a_table_that_does_not_exist_is_refused(adopt: Run) -> None:
    done = await adopt("nots")
    assert done.exit_code == 4
    assert "There is no table" in done.stderr
    assert "Name a table of this database" in done.stderr
    assert (await adopt("a.b.c")).exit_code == 2
    assert (await adopt("nots", "--column", "user_id")).exit_code == 2


async def test_tables_of_the_name_in_other_schemas_are_named_where_the_one_that_was_asked_for_does_not_exist(
    database: Database, adopt: Run
) -> None:
    async with database.connection() as connection:
        await connection.execute(
            """CREATE SCHEMA store; CREATE SCHEMA "Team 2"; CREATE TABLE store.nots (id bigint PRIMARY KEY, body text);
            CREATE VIEW "Team 2"."Nots" AS SELECT * FROM store.nots"""
        )
    done = await adopt("nots")
    assert done.exit_code == 4
    assert "There is no table public.nots." in done.stderr
    assert "Name the one that is meant: memory adopt 'Team 2.Nots'; memory adopt store.nots." in done.stderr
    assert "memory adopt store.nots" in (await adopt("stor.nots")).stderr
    assert (await adopt("Team 2.Nots")).exit_code == 4, "it is found, and is a view"


async def test_tables_of_the_same_name_in_other_schemas_are_named_unless_the_schema_was_said(
    database: Database, adopt: Run
) -> None:
    async with database.connection() as connection:
        await connection.execute(
            """CREATE SCHEMA store; CREATE TABLE notes (id bigint PRIMARY KEY, body text); CREATE TABLE "Notes" (n int);
            CREATE TABLE store.notes (LIKE notes INCLUDING ALL)"""
        )
    screen = (await adopt("notes", "--no-sensitive")).stdout
    assert "Of the same name there is also store.notes." in screen
    assert "such as public.notes" in screen
    plan = json.loads((await adopt("notes", "--no-sensitive", "--json")).stdout)
    assert plan["table"]["namesakes"] == ["store.notes"]
    assert "the same name" not in (await adopt("public.notes", "--no-sensitive")).stdout


async def test_columns_whose_names_are_of_another_language_are_shown_as_what_they_may_be(
    database: Database, adopt: Run
) -> None:
    """Whoever reads the screen sees that secret and deleted rows are not known as such."""
    async with database.connection() as connection:
        await connection.execute(
            """CREATE TABLE notizen (nummer bigint PRIMARY KEY, inhalt text, geheim boolean, "gelöscht am" timestamptz,
            deleted boolean, vektor vector(3));
            INSERT INTO notizen VALUES (1, 'Der Kessel im Keller verliert jeden Winter Druck.', true)"""
        )
    done = await adopt("notizen")
    assert done.exit_code == 4
    said = " ".join(done.stdout.split())
    assert "No column has a name that says which rows are secret. Of type boolean there are: geheim." in said
    assert "Nothing was found for user_id, category" in said
    assert "--column user_id=COLUMN names one." in said
    assert 'Used for nothing: geheim, "gelöscht am"' in said
    named = json.loads((await adopt("notizen", "--column", "is_sensitive=geheim", "--json")).stdout)
    assert "geheim" not in named["unused_columns"]
    assert "gelöscht am" in named["unused_columns"]


async def test_a_server_that_is_too_old_is_refused(
    database: Database, adopt: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan itself is made with functions that such a server lacks."""
    monkeypatch.setattr(server_version, "_OLDEST", 99)
    async with database.connection() as connection:
        await connection.execute("CREATE TABLE notes (id bigint PRIMARY KEY, body text)")
    done = await adopt("notes", "--json")
    assert (done.exit_code, json.loads(done.stderr)["reason"]) == (4, "SchemaUnsupported")
    assert "Postgres 99 or later" in json.loads(done.stderr)["message"]
