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
    assert (await adopt("a.b.c")).exit_code == 2
    assert (await adopt("nots", "--column", "user_id")).exit_code == 2


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
