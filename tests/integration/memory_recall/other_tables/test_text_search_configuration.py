"""Queries are parsed by the text search configuration that made the words of the table."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import asyncpg
import pytest

from memory_recall import EVERYONE, HybridRecall, InvalidConfiguration, RecallOptions, RecallQuery
from memory_recall.schema.columns.names import ColumnNames
from memory_recall.schema.table import describe
from tests.integration.conftest import Database

NOTES = """
CREATE TABLE notes (id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, content text, title text DEFAULT '',
    is_sensitive boolean NOT NULL DEFAULT false, deleted_at timestamptz, search_vector tsvector {generated})
"""
TEXTS = ("The boilers are losing pressure", "Die Häuser wurden gekauft", "Котлите губят налягане", "Старые котлы шумят")
GENERATED = "GENERATED ALWAYS AS ({}) STORED"
TRIGGER = """
CREATE TRIGGER words BEFORE INSERT OR UPDATE ON notes FOR EACH ROW
    EXECUTE FUNCTION tsvector_update_trigger({})
"""
FUNCTION = """
CREATE FUNCTION words(content text) RETURNS tsvector IMMUTABLE LANGUAGE sql AS
    $$SELECT to_tsvector('pg_catalog.german', content)$$
"""
Fill = Callable[..., Any]


@pytest.fixture
async def notes(database: Database) -> AsyncIterator[Fill]:
    """Makes the table, runs further statements, inserts the texts, and returns a pool of connections."""
    async with asyncpg.create_pool(database.dsn, min_size=1, max_size=2) as pool:

        async def make(expression: str | None, *statements: str, before: str | None = None) -> Any:
            if before is not None:
                await pool.execute(before)
            generated = "" if expression is None else GENERATED.format(expression)
            for statement in (NOTES.format(generated=generated), *statements):
                await pool.execute(statement)
            await pool.executemany("INSERT INTO notes (content) VALUES ($1)", [(text,) for text in TEXTS])
            return pool

        yield make


async def found(pool: Any, text: str, lexical: Any) -> list[str]:
    recall = HybridRecall(pool, None, RecallOptions("notes", lexical=lexical, time_budget=60))
    try:
        return [memory.content for memory in (await recall.recall(RecallQuery(text, user_id=EVERYONE))).memories]
    finally:
        await recall.close()


@pytest.mark.finding("database F4")
@pytest.mark.parametrize("lexical", ["bm25", "ts_rank"])
@pytest.mark.parametrize(
    ("configuration", "inflected", "text"),
    [
        ("english", "boiler loses", TEXTS[0]),
        ("simple", "boilers", TEXTS[0]),
        ("simple", "häuser", TEXTS[1]),
        ("simple", "котлите", TEXTS[2]),
        ("german", "Haus kaufen", TEXTS[1]),
        ("german", "boilers", TEXTS[0]),
        ("russian", "старый котёл котла", TEXTS[3]),
        ("russian", "котлите", TEXTS[2]),
    ],
)
async def test_words_are_found_as_the_search_column_has_them(
    notes: Fill, configuration: str, inflected: str, text: str, lexical: Any
) -> None:
    """Inflected ones where the configuration knows the language, and the same ones anywhere."""
    pool = await notes(f"to_tsvector('{configuration}', content)")
    assert text in await found(pool, inflected, lexical)


@pytest.mark.finding("database F4")
@pytest.mark.parametrize(
    ("expression", "statements", "expected"),
    [
        ("setweight(to_tsvector('german', content), 'A') || to_tsvector('german', title)", (), "german"),
        ("to_tsvector('german', content) || to_tsvector('simple', title)", (), "simple"),
        ("to_tsvector('public.\"My words\"', content)", (), 'public."My words"'),
        ("to_tsvector('public.\"it''s\"', content)", (), 'public."it\'s"'),
        ("to_tsvector('english', '''german''::regconfig' || content)", (), "english"),
        ("words(content)", (), "simple"),
        (None, (TRIGGER.format("search_vector, 'pg_catalog.german', content"),), "german"),
        (None, (TRIGGER.format("search_vector, 'PG_catalog.German', content"),), "german"),
        (None, (TRIGGER.format("search_vector, 'public.\"My words\"', content"),), 'public."My words"'),
        (None, (), "simple"),
    ],
)
async def test_the_configuration_is_that_of_the_definition_if_it_names_a_single_one(
    notes: Fill, expression: str | None, statements: tuple[str, ...], expected: str
) -> None:
    """Else it is `simple`; a name in a text that looks like one of a configuration is none."""
    own = (f'CREATE TEXT SEARCH CONFIGURATION public."{name}" (COPY = dutch);' for name in ("My words", "it's"))
    pool = await notes(expression, *statements, before="".join((*own, FUNCTION)))
    async with pool.acquire() as connection:
        assert (await describe(connection, "notes")).text_search_configuration == expected
    has_words = expression is not None or bool(statements)
    assert await found(pool, "gekauft", "bm25") == [TEXTS[1]] * has_words


@pytest.mark.parametrize(
    ("chosen", "expected"), [("german", "german"), ("pg_catalog.german", "german"), (None, "simple")]
)
async def test_where_the_definition_names_none_the_chosen_configuration_counts(
    notes: Fill, chosen: str | None, expected: str
) -> None:
    pool = await notes("words(content)", before=FUNCTION)
    async with pool.acquire() as connection:
        table = await describe(connection, "notes", ColumnNames(text_search_configuration=chosen))
        assert table.text_search_configuration == expected
        with pytest.raises(InvalidConfiguration, match="klingon"):
            await describe(connection, "notes", ColumnNames(text_search_configuration="klingon"))


async def test_the_definition_outweighs_what_was_chosen(notes: Fill) -> None:
    """Words that another configuration makes are not in the column."""
    pool = await notes("to_tsvector('russian', content)")
    async with pool.acquire() as connection:
        assert (
            await describe(connection, "notes", ColumnNames(text_search_configuration="german"))
        ).text_search_configuration == "russian"
