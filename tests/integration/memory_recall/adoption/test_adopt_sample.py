"""What `memory adopt` measures of a table: texts by length and script, marks, updates, the locale; never a text."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import asyncpg
import pytest
from typer.testing import Result

from memory_recall.schema.adoption import observations_sql
from tests.integration.conftest import Database
from tests.support.invoked_command import invoke_memory

Run = Callable[..., Awaitable[Result]]
CANARY = "kanarienvogel"
NOTES = f"""
CREATE TABLE notes (id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, body text, secret boolean, removed boolean,
    score real, extra jsonb);
INSERT INTO notes (body, secret, removed, score, extra)
SELECT CASE n % 4 WHEN 0 THEN repeat('{CANARY} ', 200) WHEN 1 THEN 'Котел в мазето'
                  WHEN 2 THEN '地下室的锅炉坏了' END, n % 10 = 0, n % 5 = 0, n / 40.0,
       jsonb_build_object('{CANARY}', n, 'owner', '{CANARY}')
  FROM generate_series(1, 40) n
"""


async def plan_of(adopt: Run, *options: str) -> dict[str, object]:
    done = await adopt("notes", *options, "--json")
    plan: dict[str, object] = json.loads(done.stdout)
    return plan


@pytest.mark.promise("no-text-or-secret-in-outputs")
@pytest.mark.parametrize("small", [2**26, 0], ids=["rows chosen one by one", "random pages"])
async def test_texts_are_measured_and_no_text_is_shown(
    database: Database, adopt: Run, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    """Neither a text nor the name of a key that is not looked for comes out of the database."""
    monkeypatch.setattr(observations_sql, "_SMALL_TABLE", small)
    async with database.connection() as connection:
        await connection.execute(NOTES)
        await connection.execute("ANALYZE notes")
    screen, found = await adopt("notes"), await adopt("notes", "--json")
    assert CANARY not in screen.output + found.output
    plan = json.loads(found.stdout)
    texts = plan["texts"]
    assert (texts["rows"], texts["texts"], texts["longer"]) == (40, 30, 10)
    assert (texts["sensitive"], texts["deleted"], texts["window"]) == (4, 8, 1024)
    assert texts["scripts"] == {"Latin": 10, "Cyrillic": 10, "Han": 10}
    assert plan["table"]["rows_counted"] is bool(small)
    used = {one["name"]: one["sources"] for one in plan["columns"]}
    assert used["user_id"] == ["extra->>'owner'"]
    assert used["importance"] == ["score"]
    assert "67 % of the texts are in scripts beyond it" in screen.stdout
    assert "25 %, about 10 rows" in screen.stdout


async def test_a_look_that_waits_for_a_lock_is_ended_and_says_what_to_do(
    database: Database, adopt: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is that of the command itself, so that the role's own has no part in it."""
    monkeypatch.setattr(observations_sql, "_STATEMENT_TIMEOUT_MS", 100)
    async with database.connection() as connection:
        await connection.execute(NOTES)
        async with connection.transaction():
            await connection.execute("LOCK TABLE notes")
            done = await adopt("notes")
    assert done.exit_code != 0
    assert "no other session holds a lock on the table" in done.stderr
    assert "statement timeout is set for this role" not in done.stderr


async def test_a_fillfactor_is_proposed_for_a_table_that_is_updated_often(database: Database, adopt: Run) -> None:
    async with database.connection() as connection:
        await connection.execute(NOTES)
        assert (await plan_of(adopt))["statements"] == []
        await connection.execute("UPDATE notes SET score = score / 2 WHERE id <= 8")
        await connection.execute("SELECT pg_stat_force_next_flush()")
    plan = await plan_of(adopt)
    assert plan["updates"]["updates"] == 8  # type: ignore[index]
    assert plan["statements"] == ['ALTER TABLE "public"."notes" SET (fillfactor = 85)']
    screen = await adopt("notes", "--fillfactor", "70")
    assert 'ALTER TABLE "public"."notes" SET (fillfactor = 70);' in screen.stdout


async def test_each_partition_gets_the_fillfactor(database: Database, adopt: Run) -> None:
    """A partitioned table itself has no pages."""
    async with database.connection() as connection:
        await connection.execute(
            """CREATE TABLE notes (id bigint, owner text, body text, PRIMARY KEY (id, owner)) PARTITION BY LIST (owner);
            CREATE TABLE notes_ana PARTITION OF notes FOR VALUES IN ('ana');
            INSERT INTO notes VALUES (1, 'ana', 'The stove was swept.')"""
        )
    done = await adopt("notes", "--no-sensitive", "--fillfactor", "80", "--apply")
    assert done.exit_code == 0, done.output
    async with database.connection() as connection:
        rows = await connection.fetch("SELECT relname, reloptions::text FROM pg_class WHERE relname LIKE 'notes%'")
    options = {row["relname"]: row["reloptions"] for row in rows}
    assert (options["notes"], options["notes_ana"]) == (None, "{fillfactor=80}")


@pytest.mark.finding("database F5")
async def test_the_locale_is_named_that_knows_no_small_letters_outside_of_ascii(
    bare_database: Database, adopt: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{bare_database.name}_c"
    admin = await asyncpg.connect(bare_database.superuser_dsn)
    await admin.execute(f"CREATE DATABASE {name} OWNER app TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    try:
        dsn = bare_database.server.dsn(name)
        monkeypatch.setenv("MEMORY_DATABASE_URL", dsn)
        connection = await asyncpg.connect(dsn)
        await connection.execute(NOTES)
        await connection.close()
        plan, screen = await plan_of(adopt), (await adopt("notes")).stdout
    finally:
        await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
        await admin.close()
    assert plan["database"]["folds_case"] is False  # type: ignore[index]
    assert plan["texts"]["scripts"] == {"Latin": 10, "Cyrillic": 10, "Han": 10}  # type: ignore[index]
    assert "The locale knows no small letters outside of ASCII" in screen
    assert "pgvector) is not created in this database; the server has" in screen
    assert plan["adoptable"] is False


async def test_it_is_said_that_writers_lose_two_phase_commit_where_the_server_allows_it(
    own_database: Database, adopt: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Postgres prepares no transaction that has notified, as the triggers do once a row awaits its vector."""
    monkeypatch.setenv("MEMORY_DATABASE_URL", own_database.dsn)
    admin = await asyncpg.connect(own_database.superuser_dsn)
    await admin.execute("ALTER SYSTEM SET max_prepared_transactions = 2")
    await admin.close()
    async with own_database.connection() as connection:
        await connection.execute(NOTES)
    assert "Two-phase commit" not in (await adopt("notes")).stdout
    await asyncio.to_thread(own_database.server.restart, "fast")
    assert "Two-phase commit: the server allows it" in (await adopt("notes")).stdout
    done = await adopt("notes", "--apply")
    assert done.exit_code == 0, done.output
    async with own_database.connection() as connection:
        await connection.execute("BEGIN; UPDATE notes SET body = 'Another text.' WHERE id = 1")
        with pytest.raises(asyncpg.FeatureNotSupportedError, match="NOTIFY"):
            await connection.execute("PREPARE TRANSACTION 'one'")


@pytest.mark.parametrize(
    ("published", "named"),
    [
        ("FOR ALL TABLES", True),
        ("FOR TABLES IN SCHEMA public", True),
        ("FOR TABLE notes", True),
        ("FOR TABLE notes (id, body)", False),
    ],
)
async def test_the_publications_are_named_whose_subscribers_would_get_our_columns(
    database: Database, adopt: Run, published: str, named: bool
) -> None:
    """A publication of named columns does not change by those that are added."""
    async with database.connection() as connection:
        await connection.execute(NOTES)
    assert (await plan_of(adopt))["publications"] == []
    superuser = await asyncpg.connect(database.superuser_dsn)
    await superuser.execute(f'CREATE PUBLICATION "Read more" {published}')
    await superuser.close()
    assert (await plan_of(adopt))["publications"] == ["Read more"] * named
    assert ('Publications: "Read more" ' in (await adopt("notes")).stdout) is named


@pytest.mark.parametrize(
    ("firing", "named"),
    [
        ("AFTER INSERT OR UPDATE ON notes FOR EACH ROW", True),
        ("AFTER UPDATE OF body ON notes FOR EACH ROW", False),
        ("BEFORE UPDATE ON notes FOR EACH ROW", True),
        ("AFTER UPDATE ON notes FOR EACH STATEMENT", False),
        ("AFTER INSERT ON notes FOR EACH ROW", False),
    ],
)
async def test_the_triggers_are_named_that_fire_at_each_vector_that_is_stored(
    database: Database, adopt: Run, firing: str, named: bool
) -> None:
    async with database.connection() as connection:
        await connection.execute(NOTES)
        await connection.execute("CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
        await connection.execute(f"CREATE TRIGGER audit {firing} EXECUTE FUNCTION audit()")
    assert (await plan_of(adopt))["triggers"] == ["audit"] * named
    assert ("Triggers: audit will fire" in (await adopt("notes")).stdout) is named


@pytest.mark.finding("database F3")
async def test_status_says_how_many_texts_are_in_scripts_beyond_the_model(database: Database, adopt: Run) -> None:
    """Counts of scripts alone leave the database; a model for every script has no such line."""
    async with database.connection() as connection:
        await connection.execute(NOTES)
        done = await adopt("notes", "--apply")
        assert done.exit_code == 0, done.output
        screen, counted = await status_of("notes"), await status_of("notes", "--json")
        assert "67 % of the texts are in scripts beyond it" in screen
        assert CANARY not in screen + counted
        scripts = {"Latin": 10, "Cyrillic": 10, "Han": 10}
        assert json.loads(counted)["texts"] == {"sampled": 30, "scripts": scripts, "beyond_model": 20}
        await connection.execute("UPDATE memory_index_models SET name = 'multilingual-e5-small'")
        assert json.loads(await status_of("notes", "--json"))["texts"]["beyond_model"] is None
        assert "scripts beyond" not in await status_of("notes")


async def status_of(table: str, *options: str) -> str:
    """Return what `memory status` prints of a table."""
    environment = {"MEMORY_TABLE": table}
    done = await asyncio.to_thread(invoke_memory, ["status", *options], environment)
    assert done.exit_code == 0, done.output
    return done.stdout
