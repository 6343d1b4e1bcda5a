"""A table without a search column gets one of ours, in which words of every script and language are found."""
# ruff: noqa: RUF001  (letters of other scripts are what is tested)

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import asyncpg
import pytest
from structlog.testing import capture_logs

from memory_recall import EVERYONE, HybridRecall, RecallOptions, RecallQuery
from memory_recall.indexing.companions.sweeping import sweep_hashes
from memory_recall.indexing.words_sql import fill_words
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.columns.names import OWN_SEARCH_COLUMN, ColumnNames
from memory_recall.schema.migrate import MigrationRequest, migrate
from memory_recall.schema.revisions import require_schema
from memory_recall.schema.roles import role_script
from memory_recall.schema.table import describe
from memory_recall.status import inspect
from tests.integration.conftest import Database
from tests.integration.memory_recall.fake_embedder import FakeEmbedder
from tests.integration.memory_recall.workbench import Workbench
from tests.support.invoked_command import invoke_memory

TABLE = "CREATE TABLE notes (id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, content text)"
GENERATED = "search_vector tsvector GENERATED ALWAYS AS (to_tsvector('simple', content)) STORED"
WITH_WORDS = f"{TABLE[:-1]}, {GENERATED})"
LOCALES = ("LOCALE 'C.UTF-8' ENCODING 'UTF8'", "LOCALE 'C' ENCODING 'UTF8'")
WORDS = (
    ("Котел в мазето", "котел"),
    ("Äpfel und Birnen", "äpfel"),
    ("Čaj s limunom", "čaj"),
    ("Το ΝΕΡΌ κόπηκε", "νερό"),
    ("Решено: «Котелът» се сменя…", "котелът"),
    ("Un café con leche", "cafe"),
    ("Un jalapen\u0303o muy picante", "jalapeño"),
    ("Ｗｉｆｉ in der Küche", "wifi"),
    ("風呂のボイラーを修理した", "ボイラー"),
    ("锅炉的压力太低了", "压力"),
    ("수도관이 얼었다", "수도관이"),
    ("หม้อไอน้ำเสีย", "ไอน้ำ"),
    ("बॉयलर का दबाव", "दबाव"),
    ("The boiler's pressure", "boiler"),
)
"""Texts, and words by which each is found."""
MANY_WORDS = " ".join(f"w{number:x}" for number in range(330_000))  # 2 MB
RequestFor = Callable[..., MigrationRequest]
Make = Callable[..., Any]


def dsn_of_words(database: Database) -> str:
    """The connection URI of the database that the fixture `notes` makes."""
    return f"{database.superuser_dsn.rpartition('/')[0]}/{database.name}_words"


@pytest.fixture
async def notes(database: Database, request_for: RequestFor) -> AsyncIterator[Make]:
    """Makes a database of a locale with the table and its first texts, migrates it, and returns a pool."""
    dsn = dsn_of_words(database)
    name = dsn.rpartition("/")[2]
    server = await asyncpg.connect(database.superuser_dsn)

    async with AsyncExitStack() as stack:

        async def make(
            *texts: str,
            locale: str = LOCALES[1],
            configuration: str | None = None,
            table: str = TABLE,
            columns: dict[str, str] = {},  # noqa: B006 -- it is not changed
        ) -> Any:
            await server.execute(f"CREATE DATABASE {name} {locale} TEMPLATE template0")
            stack.push_async_callback(server.execute, f"DROP DATABASE {name} WITH (FORCE)")
            pool = await stack.enter_async_context(asyncpg.create_pool(dsn, min_size=1, max_size=2))
            for statement in ("CREATE EXTENSION vector", table):
                await pool.execute(statement)
            await pool.executemany("INSERT INTO notes (content) VALUES ($1)", [(text,) for text in texts])
            names = ColumnNames.parse(
                {"deleted_at": "", **columns}, all_public=True, text_search_configuration=configuration
            )
            await migrate(DsnText(dsn), request_for(table="notes", columns=names))
            return pool

        yield make
    await server.close()


async def left_by_filling(pool: Any) -> int:
    """Make the words of all rows; return how many rows have none then, 0 without a search column of ours."""
    async with pool.acquire() as connection:
        table = await describe(connection, "notes")
        if not table.names.has_own_search_column:
            return 0
        last = await fill_words(connection, table)
        while last is not None:
            last = await fill_words(connection, table, last)
        left: int = await connection.fetchval(f"SELECT count(*) FROM notes WHERE {OWN_SEARCH_COLUMN} IS NULL")
        return left


async def found(pool: Any, text: str, lexical: Any = "bm25") -> list[str]:
    recall = HybridRecall(pool, None, RecallOptions("notes", lexical=lexical, time_budget=60))
    try:
        return [memory.content for memory in (await recall.recall(RecallQuery(text, user_id=EVERYONE))).memories]
    finally:
        await recall.close()


@pytest.mark.finding("database F4")
@pytest.mark.finding("database F5")
@pytest.mark.parametrize("lexical", ["bm25", "ts_rank"])
@pytest.mark.parametrize("locale", LOCALES)
async def test_words_of_every_script_are_found_in_either_locale(notes: Make, locale: str, lexical: Any) -> None:
    pool = await notes(*(text for text, _ in WORDS), "Something else altogether", "外に何もない", locale=locale)
    assert await left_by_filling(pool) == 0
    for text, words in WORDS:
        assert (await found(pool, words, lexical))[:1] == [text], words


async def test_the_chosen_language_finds_inflected_words(notes: Make) -> None:
    pool = await notes("Die Häuser wurden gekauft", configuration="german")
    await left_by_filling(pool)
    assert await found(pool, "Haus kaufen") == ["Die Häuser wurden gekauft"]


async def test_new_and_edited_texts_are_found_at_once_and_older_ones_after_the_filling(notes: Make) -> None:
    pool = await notes("The kettle sings", "The kettle is silent")
    await pool.execute("INSERT INTO notes (content) VALUES ('The boiler hums'), (NULL)")
    assert await found(pool, "boiler") == ["The boiler hums"]
    assert await found(pool, "kettle") == []
    await pool.execute("UPDATE notes SET content = 'The stove glows' WHERE content = 'The kettle sings'")
    assert await found(pool, "stove") == ["The stove glows"]
    assert await left_by_filling(pool) == 0
    assert await found(pool, "kettle") == ["The kettle is silent"]


@pytest.mark.parametrize("worker", ["backfill", "sweep"])
async def test_a_backfill_and_a_sweep_make_the_words_that_are_missing_and_the_status_counts_them(
    notes: Make, database: Database, worker: str
) -> None:
    pool = await notes("The kettle sings", "The boiler hums", configuration="english")
    dsn = f"{database.superuser_dsn.rpartition('/')[0]}/{database.name}_words"
    async with pool.acquire() as connection:
        assert (await inspect(connection, "notes")).rows.without_words == 2
    async with FakeEmbedder(dimensions=8) as embedder:
        work = Workbench(Database(database.name, dsn, dsn, database.server), embedder)
        work.plan = replace(work.plan, table="notes")
        if worker == "backfill":
            await work.backfill()
        else:
            sweeping = asyncio.create_task(sweep_hashes(DsnText(dsn), "notes", work.ear, work.stop))
            async with asyncio.timeout(60):
                while await found(pool, "boiler") == []:  # noqa: ASYNC110  (it is the database that changes)
                    await asyncio.sleep(0.02)
            work.stop.set()
            await sweeping
    assert await found(pool, "boilers") == ["The boiler hums"]
    async with pool.acquire() as connection:
        assert (await inspect(connection, "notes")).rows.without_words == 0


async def test_several_workers_fill_beside_one_another_and_a_locked_row_is_left_for_later(notes: Make) -> None:
    pool = await notes(*(f"text number {number}" for number in range(450)))
    async with pool.acquire() as holder:
        transaction = holder.transaction()
        await transaction.start()
        await holder.execute("SELECT FROM notes WHERE id = 7 FOR UPDATE")
        assert await left_by_filling(pool) == 1
        await transaction.rollback()
    assert min(await asyncio.gather(left_by_filling(pool), left_by_filling(pool))) == 0


async def test_a_row_that_its_table_refuses_to_update_keeps_no_other_from_its_words(notes: Make) -> None:
    pool = await notes(*(f"text number {number}" for number in range(20)), "ab")
    await pool.execute("ALTER TABLE notes ADD CHECK (char_length(content) > 3) NOT VALID")
    with capture_logs() as logs:
        assert await left_by_filling(pool) == 1
    assert [entry["rows"] for entry in logs if "refuses updates" in entry["event"]] == [1]
    assert await pool.fetchval(f"SELECT content FROM notes WHERE {OWN_SEARCH_COLUMN} IS NULL") == "ab"


@pytest.mark.parametrize("reason", ["RowRefused", "EmbedderRejected"])
async def test_only_a_row_quarantined_because_its_table_refuses_it_no_longer_waits_for_its_words(
    notes: Make, reason: str
) -> None:
    """The condition Backfilled was False for ever, although nothing was left to be done."""
    pool = await notes("ab", "abc")
    await pool.execute(
        "INSERT INTO memory_embedding_failures (id, text_hash, attempts, error_class, next_attempt) "
        "SELECT id, memory_index_text_hash(content), 1, $1, 'infinity' FROM notes WHERE content = 'ab'",
        reason,
    )
    async with pool.acquire() as connection:
        rows = (await inspect(connection, "notes")).rows
    assert rows.without_words == (1 if reason == "RowRefused" else 2)
    assert (rows.quarantined, rows.pending) == (1, 1)


@pytest.mark.finding("database F13")
async def test_a_text_of_two_megabytes_of_distinct_words_fails_neither_the_writer_nor_the_filling(notes: Make) -> None:
    pool = await notes(MANY_WORDS)
    await pool.execute("INSERT INTO notes (content) VALUES ($1)", MANY_WORDS)
    assert await left_by_filling(pool) == 0
    assert len(await found(pool, "w2 w3")) == 2


@pytest.mark.parametrize("character", ["\U00020000", "漢", "é", "a"])
async def test_the_longest_text_that_is_read_fits_into_a_tsvector_whatever_its_letters_are(
    notes: Make, character: str
) -> None:
    """Every pair of characters differs from the others, which takes the most space."""
    first = ord(character)
    letters = "".join(chr(first + place % 20_000) for place in range(0, 160_000, 7)) if first > 0x3000 else ""
    spaced = " ".join(f"{character}{number:x}-{character}{number:x}" for number in range(90_000))
    pool = await notes()
    await pool.execute("INSERT INTO notes (content) VALUES ($1), ($2)", letters * 4 + spaced, spaced)
    assert await pool.fetchval(f"SELECT count({OWN_SEARCH_COLUMN}) FROM notes") == 2


@pytest.mark.finding("database F5")
@pytest.mark.parametrize(
    ("locale", "table", "columns", "kept"),
    [
        (LOCALES[1], WITH_WORDS, {}, True),
        (LOCALES[0], WITH_WORDS, {}, False),
        (LOCALES[1], TABLE, {}, False),
        (LOCALES[1], WITH_WORDS, {"search_vector": ""}, False),
    ],
    ids=["of another, locale C", "of another, locale C.UTF-8", "ours", "ours by the remedy"],
)
async def test_the_status_says_where_a_search_column_of_another_program_tells_words_apart_by_case(
    notes: Make,
    database: Database,
    locale: str,
    table: str,
    columns: dict[str, str],
    *,
    kept: bool,
) -> None:
    """A search in small letters then misses what is written with a capital one."""
    pool = await notes("Котел в мазето", locale=locale, table=table, columns=columns)
    await left_by_filling(pool)
    async with pool.acquire() as connection:
        assert (await inspect(connection, "notes")).words_keep_case is kept
    assert bool(await found(pool, "котел")) is not kept
    environment = {"MEMORY_DATABASE_URL": dsn_of_words(database), "MEMORY_TABLE": "notes"}
    shown = await asyncio.to_thread(invoke_memory, ["status"], environment)
    assert shown.exit_code == 0, shown.stderr
    assert ("no small letters outside of ASCII" in shown.stdout) is kept


async def test_words_are_the_same_however_the_server_reads_backslashes(notes: Make) -> None:
    pool = await notes()
    made = []
    for setting in ("on", "off"):
        async with pool.acquire() as connection:
            await connection.execute(f"SET standard_conforming_strings = {setting}")
            made.append(
                await connection.fetchval("SELECT memory_index_words($1)::text", "Cafe\u0301 «锅炉压力» jalapeño")
            )
    assert made[0] == made[1]
    assert all(word in made[0] for word in ("'cafe'", "'炉压'", "'jalapeno'"))


async def test_without_unicode_words_are_made_as_postgres_makes_them(notes: Make) -> None:
    pool = await notes("The boiler hums", locale="LOCALE 'C' ENCODING 'LATIN1'")
    await left_by_filling(pool)
    assert await found(pool, "BOILER") == ["The boiler hums"]


async def test_a_worker_with_the_least_rights_fills_and_a_reader_finds(notes: Make) -> None:
    pool = await notes("The boiler hums")
    async with pool.acquire() as connection:
        table = await require_schema(connection, "notes")
        await connection.execute(role_script(table, worker="words_worker", reader="words_reader"))
        try:
            await connection.execute("SET ROLE words_worker")
            assert await fill_words(connection, table) == 1
            await connection.execute("SET ROLE words_reader")
            assert await connection.fetchval(f"SELECT {table.words('$1')} @@ 'hum | hums'", "it hums")
        finally:
            await connection.execute("RESET ROLE")
            await connection.execute("DROP OWNED BY words_worker, words_reader")
            await connection.execute("DROP ROLE words_worker, words_reader")


async def test_an_update_of_another_column_makes_no_words_anew(notes: Make) -> None:
    pool = await notes("The boiler hums")
    await left_by_filling(pool)
    await pool.execute("ALTER TABLE notes ADD COLUMN seen integer")
    await pool.execute("ALTER FUNCTION memory_index_words(text) RENAME TO gone")
    await pool.execute("UPDATE notes SET seen = 1")
    with pytest.raises(asyncpg.UndefinedFunctionError):
        await pool.execute("UPDATE notes SET content = 'The stove glows'")


async def test_a_trigger_that_notes_the_time_of_an_edit_notes_none_when_words_are_made(notes: Make) -> None:
    pool = await notes("one", "two", table=f"{TABLE[:-1]}, updated_at timestamptz NOT NULL DEFAULT '2020-01-01')")
    await pool.execute(
        "CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN NEW.updated_at := now(); RETURN NEW; END $$"
    )
    await pool.execute("CREATE TRIGGER touch BEFORE UPDATE ON notes FOR EACH ROW EXECUTE FUNCTION touch()")
    assert await left_by_filling(pool) == 0
    assert await pool.fetchval("SELECT count(*) FROM notes WHERE updated_at > '2020-01-01'") == 0
