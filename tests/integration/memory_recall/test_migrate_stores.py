"""Tables of other names, keys and shapes are migrated as they are, and the same rules hold in them."""

from collections.abc import Callable

import pytest

from memory_recall.errors import SchemaUnsupported
from memory_recall.postgres.connection import Connection, DsnText, opened
from memory_recall.schema.columns.names import OUR_NAMES, ColumnNames
from memory_recall.schema.migrate import MigrationRequest, migrate, remove
from memory_recall.schema.revisions import require_schema
from memory_recall.schema.table import describe
from memory_recall.status import inspect
from tests.integration.conftest import Database
from tests.support.stores import STORES, Store

pytestmark = [pytest.mark.finding("database F6"), pytest.mark.finding("database F7")]
RequestFor = Callable[..., MigrationRequest]
VECTOR = "('[' || repeat('1,', 7) || '1]')::halfvec(8)"
each_store = pytest.mark.parametrize("store", STORES, ids=lambda store: store.name)


def request_of(store: Store, request_for: RequestFor) -> MigrationRequest:
    return request_for(table=store.table, columns=store.names)


async def made(database: Database, store: Store) -> DsnText:
    """Create the store's table with two memories."""
    source = DsnText(database.dsn)
    async with opened(source, "test") as connection:
        await connection.execute(store.create)
        for text in ("The boiler was bled.", "The kettle was descaled."):
            await added(connection, store, text)
    return source


async def added(connection: Connection, store: Store, text: str) -> object:
    """Add a memory that is not sensitive; return its id."""
    is_sensitive = False
    return await connection.fetchval(store.insert, text, "7", is_sensitive)


async def embedded(connection: Connection, store: Store) -> list[bool]:
    rows = await connection.fetch(
        f"SELECT {store.names.embedding} IS NOT NULL AS there FROM {store.relation} ORDER BY 1 DESC"
    )
    return [row["there"] for row in rows]


@each_store
async def test_a_table_of_another_shape_is_migrated_and_its_names_are_recorded(
    store: Store, database: Database, request_for: RequestFor
) -> None:
    source = await made(database, store)
    await migrate(source, request_of(store, request_for))
    assert (await migrate(source, request_of(store, request_for))).applied == [], "a second run finds all in place"
    async with opened(source, "test") as connection:
        table = await require_schema(connection, store.table)
        facts = await inspect(connection, store.table, store.names)
    assert table.names == store.names.for_table(table.catalog)
    assert (facts.faults, facts.schema_differences, facts.rows.pending) == ((), "", 2)


@each_store
async def test_the_rules_hold_in_a_table_of_another_shape(
    store: Store, database: Database, request_for: RequestFor
) -> None:
    source = await made(database, store)
    await migrate(source, request_of(store, request_for))
    for change in (store.edit, store.hide, store.delete):
        if change is None:
            continue
        async with opened(source, "test") as connection:
            key = await added(connection, store, "The stove was swept.")
            await connection.execute(f"UPDATE {store.relation} SET {store.names.embedding} = {VECTOR}")
            before = await embedded(connection, store)
            arguments = (key, "The stove was sold.") if change is store.edit else (key,)
            await connection.execute(change, *arguments)
            assert (await embedded(connection, store)).count(False) == before.count(False) + 1, change


@each_store
async def test_a_vector_of_a_sensitive_or_deleted_row_is_refused_under_every_name(
    store: Store, database: Database, request_for: RequestFor
) -> None:
    source = await made(database, store)
    await migrate(source, request_of(store, request_for))
    async with opened(source, "test") as connection:
        for change in filter(None, (store.hide, store.delete)):
            key = await added(connection, store, "The safe opens with 4711.")
            await connection.execute(change, key)
        await connection.execute(f"UPDATE {store.relation} SET {store.names.embedding} = {VECTOR}")
        assert (await embedded(connection, store)).count(True) == 2


@each_store
async def test_removing_what_was_added_leaves_the_table_as_it_was(
    store: Store, database: Database, request_for: RequestFor
) -> None:
    source = await made(database, store)
    shape = (
        "SELECT jsonb_agg(jsonb_build_array(attname, atttypid, attnotnull) ORDER BY attname)::text FROM pg_attribute "
        f"WHERE attrelid = '{store.relation}'::regclass AND attnum > 0 AND NOT attisdropped"
    )
    async with opened(source, "test") as connection:
        before = await connection.fetchval(shape)
    await migrate(source, request_of(store, request_for))
    await remove(source, request_of(store, request_for))
    async with opened(source, "test") as connection:
        assert await connection.fetchval(shape) == before
        assert (
            await connection.fetchval(f"SELECT count(*) FROM pg_trigger WHERE tgrelid = '{store.relation}'::regclass")
            == 0
        )


async def test_another_name_than_the_recorded_one_is_refused_with_the_way(
    database: Database, request_for: RequestFor
) -> None:
    store = STORES[0]
    source = await made(database, store)
    await migrate(source, request_of(store, request_for))
    other = ColumnNames.parse({**store.columns, "importance": ""})
    with pytest.raises(SchemaUnsupported, match=r"importance of .* was recorded as order, not as absent") as refused:
        await migrate(source, request_for(table=store.table, columns=other))
    assert "memory migrate --to base" in str(refused.value.remedy)
    vectors = ColumnNames.parse({**store.columns, "embedding": "memory_embedding"})
    with pytest.raises(
        SchemaUnsupported, match="are in the column embedding, as was recorded, not in memory_embedding"
    ):
        await migrate(source, request_for(table=store.table, columns=vectors))
    await migrate(source, request_for(table=store.table))
    async with opened(source, "test") as connection:
        assert (await describe(connection, store.table, OUR_NAMES)).names == store.names


async def test_a_name_that_the_table_lacks_is_refused_before_anything_is_changed(
    database: Database, request_for: RequestFor
) -> None:
    store = STORES[0]
    source = await made(database, store)
    wrong = ColumnNames.parse({**store.columns, "content": "bdy", "tags": "labels", "id": "body"})
    with pytest.raises(SchemaUnsupported) as refused:
        await migrate(source, request_for(table=store.table, columns=wrong))
    assert "has no column bdy, which is named for content" in str(refused.value)
    assert "has no column labels, which is named for tags" in str(refused.value)
    async with opened(source, "test") as connection:
        assert "embedding" not in (await describe(connection, store.table)).catalog


async def test_a_table_without_any_word_about_secrets_is_refused_with_both_ways(
    database: Database, request_for: RequestFor
) -> None:
    store = STORES[3]
    source = await made(database, store)
    with pytest.raises(SchemaUnsupported) as refused:
        await migrate(source, request_for(table=store.table, columns=ColumnNames.parse(dict(store.columns))))
    assert "ADD COLUMN is_sensitive" in str(refused.value.remedy)
    assert "MEMORY_SENSITIVITY=none" in str(refused.value.remedy)
