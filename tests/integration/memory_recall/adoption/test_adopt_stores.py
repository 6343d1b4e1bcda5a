"""`memory adopt` finds what another program's table has for which purpose, changes nothing, and adopts it as said."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
import yaml
from typer.testing import Result

from memory_operator.api.spec import parse
from memory_operator.resources.columns import column_names, column_settings
from memory_recall.postgres.connection import DsnText, opened
from memory_recall.schema.columns.names import ColumnNames
from memory_recall.schema.revisions import require_schema
from memory_recall.schema.table import ACTIVE
from tests.integration.conftest import Database
from tests.support.foreign_stores import FOREIGN_STORES, ForeignStore

pytestmark = [pytest.mark.finding("database F6"), pytest.mark.finding("database F15")]
OWNER = "11111111-aaaa-4111-8111-111111111111"
TEXTS = ("The boiler in the cellar loses pressure every winter.", "Our dog Bruno is allergic to chicken.")
Run = Callable[..., Awaitable[Result]]
each_store = pytest.mark.parametrize("store", FOREIGN_STORES, ids=lambda store: store.name)
_EVERYTHING = """
SELECT md5(string_agg(said, ' ' ORDER BY said)) FROM (
    SELECT c.relname || a.attname || a.atttypid || coalesce(c.reloptions::text, '') AS said
      FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
     WHERE c.relnamespace::regnamespace::text NOT IN ('pg_catalog', 'information_schema') AND c.relkind <> 't'
    UNION ALL SELECT tgname FROM pg_trigger UNION ALL SELECT conname FROM pg_constraint) found
"""


async def made(database: Database, store: ForeignStore) -> None:
    async with database.connection() as connection:
        await connection.execute(store.create)
        for text in TEXTS:
            await connection.execute(store.write, text, OWNER)


@each_store
async def test_a_store_is_understood_and_nothing_is_changed(
    store: ForeignStore, database: Database, adopt: Run
) -> None:
    await made(database, store)
    async with database.connection() as connection:
        before = await connection.fetchval(_EVERYTHING)
    done = await adopt(store.table, *store.options, "--json")
    assert done.exit_code == 0, done.output
    plan = json.loads(done.stdout)
    found = {one["name"]: ", ".join(one["sources"]) for one in plan["columns"]}
    expected = ColumnNames.parse(dict(store.used), all_public="--no-sensitive" in store.options)
    given = json.loads(plan["settings"].get("MEMORY_COLUMNS", "{}"))
    assert {name: source for name, source in found.items() if name in store.used} == store.used
    assert not [name for name in found if found[name] and name != found[name] and name not in store.used]
    for name, source in store.used.items():
        assert given[name] == source
    assert (plan["questions"], plan["faults"], plan["adoptable"], plan["applied"]) == ([], [], True, None)
    assert (plan["table"]["rows"], plan["texts"]["texts"], plan["texts"]["scripts"]) == (2, 2, {"Latin": 2})
    assert given.get("embedding", "embedding") == store.embedding
    all_public = plan["settings"].get("MEMORY_SENSITIVITY") == "none"
    parsed = ColumnNames.parse(given, all_public=all_public)
    assert {name: parsed.of(name) for name in store.used} == {name: expected.of(name) for name in store.used}
    async with database.connection() as connection:
        assert await connection.fetchval(_EVERYTHING) == before


@each_store
async def test_the_resource_and_the_settings_of_the_screen_name_the_same_columns(
    store: ForeignStore, database: Database, adopt: Run
) -> None:
    """The lines for a shell are run by one, and the resource is read as the operator reads it."""
    await made(database, store)
    screen = (await adopt(store.table, *store.options)).stdout
    plan = json.loads((await adopt(store.table, *store.options, "--json")).stdout)
    exports = "\n".join(line for line in screen.splitlines() if line.startswith("  export "))
    names = " ".join(plan["settings"])
    shown = f'{exports}\nfor name in {names}; do printf "%s=%s\\0" "$name" "${{!name}}"; done'
    bash = await asyncio.create_subprocess_exec("bash", "-c", shown, stdout=asyncio.subprocess.PIPE)
    printed = (await bash.communicate())[0].decode()
    assert dict(line.split("=", 1) for line in printed.split("\0")[:-1]) == plan["settings"]
    lines = screen[screen.index("  apiVersion") :].split("\n\n")[0]
    resource = yaml.safe_load("\n".join(line.removeprefix("  ") for line in lines.splitlines()))
    assert resource == plan["resource"]
    metadata = {"namespace": "n", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1}
    index = parse({**resource, "metadata": resource["metadata"] | metadata})
    settings = {name: value for name, value in column_settings(index).items() if value}
    expected = {name: value for name, value in plan["settings"].items() if name != "MEMORY_TABLE"}
    assert (
        column_names(index).to_json()
        == ColumnNames.parse(
            json.loads(expected.get("MEMORY_COLUMNS", "{}")), all_public="MEMORY_SENSITIVITY" in expected
        ).to_json()
    )
    assert settings.keys() == expected.keys()


@each_store
async def test_apply_migrates_with_the_proposed_names_and_the_store_is_written_as_before(
    store: ForeignStore, database: Database, adopt: Run
) -> None:
    await made(database, store)
    done = await adopt(store.table, *store.options, "--apply", "--fillfactor", "80", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["applied"]["revision"] is not None
    async with opened(DsnText(database.dsn), "test") as connection:
        table = await require_schema(connection, store.table)
        await connection.execute(store.write, "The stove was swept.", OWNER)
        options = await connection.fetchval(
            "SELECT reloptions::text FROM pg_class WHERE oid = $1::regclass", table.qualified
        )
    assert {name: table.names.written(name) for name in store.used} == store.used
    assert table.vector_name(ACTIVE) == store.embedding
    assert options == "{fillfactor=80}"
    repeated = await adopt(store.table, *store.options, "--apply", "--fillfactor", "80", "--json")
    assert repeated.exit_code == 0, repeated.output
    assert json.loads(repeated.stdout)["faults"] == []
    other = await adopt(store.table, *store.options, "--column", "importance=no_such_column")
    assert "was recorded as" in other.stdout, "what is given is compared"
    again = await adopt(store.table)
    assert again.exit_code == 0, again.output
    assert "It is adopted" in again.stdout
    assert "recorded by the first migration" in again.stdout
