"""Memories of another program's table are compared, marked and unmarked, and drawn for labelling, by their own ids."""

from datetime import UTC, datetime

import pytest

from memory_recall.contrib.curation.decisions import Action, Decider
from memory_recall.contrib.curation.finding import find_proposals
from memory_recall.contrib.curation.journal_sql import apply_proposals, steps, undo
from memory_recall.contrib.curation.proposal_file import Proposal, read_proposals, write_proposals
from memory_recall.contrib.labelling.store import PostgresStore
from memory_recall.errors import InvalidInput, SchemaUnsupported
from memory_recall.postgres.connection import create_pool, opened
from memory_recall.schema.supersessions import sweep_page
from memory_recall.schema.table import ACTIVE
from tests.integration.memory_recall.adopted.conftest import BOILER, KETTLE, SECRET, StoreBench, only

OLD = "The resolver of the house is pihole in the cupboard."
NEW = "Pihole is replaced: the resolver of the house is adguard now."
VECTOR = "('[' || repeat('1,', 7) || '1]')::halfvec(8)"


async def proposal(adopted: StoreBench, older: object, newer: object) -> Proposal:
    """A proposal as if it had been found."""
    table = await adopted.table()
    row = table.row("m")
    texts = f"SELECT {table.own('memory_index_text_hash')}({row.content}) FROM {table.qualified} m WHERE {row.id} = $1"
    hashes = [await adopted.value(texts, one) for one in (older, newer)]
    return Proposal(
        action=Action.SUPERSEDE, decided_by=Decider.RULES, id=older, superseded_by=newer, score=1.0, older="", newer="",
        text_hash=hashes[0], successor_hash=hashes[1],
    )  # fmt: skip


@only("nothing but a key and a text")
async def test_a_table_without_a_time_of_creation_is_refused_with_a_remedy_that_helps(adopted: StoreBench) -> None:
    """No migration adds that column to a table of another program."""
    async with opened(adopted.source, "test") as connection:
        with pytest.raises(SchemaUnsupported, match="has no column created_at") as refused:
            await find_proposals(connection, await adopted.table(), user=None, since=None)
    assert "MEMORY_COLUMNS names for created_at" in str(refused.value.remedy)


@only("other names and a uuid", "documents")
async def test_a_restatement_is_found_written_read_applied_and_undone(adopted: StoreBench, tmp_path: object) -> None:
    older = await adopted.add(OLD)
    for number in range(12):
        await adopted.add(f"note {number} of the garden")
    newer = await adopted.add(NEW)
    table = await adopted.table()
    await adopted.execute(f"UPDATE {table.qualified} SET {table.vector_name(ACTIVE)} = {VECTOR}")
    if "payload" in table.catalog:
        await adopted.execute(
            """UPDATE mem0 SET payload = payload || '{"created_at": "2026-04-01T10:00:00Z"}' WHERE id = $1""", newer
        )
    async with opened(adopted.source, "test") as connection:
        found = await find_proposals(connection, table, user="7", since=datetime(2020, 1, 1, tzinfo=UTC))
        best = [one for one in found if one.action is not Action.ADD]
        assert [(one.id, one.superseded_by, one.action) for one in best] == [(older, newer, Action.SUPERSEDE)]
        file = tmp_path / "proposals.jsonl"  # type: ignore[operator]
        write_proposals(file, best)
        applied = await apply_proposals(connection, table, read_proposals(file))
        assert (applied.applied, applied.skipped) == (1, 0)
        assert [(one.id, one.superseded_by) for one in await steps(connection, table)] == [(older, newer)]
        assert [one for one in await find_proposals(connection, table, user="7", since=None) if one.id == older] == []
        assert await undo(connection, table, run=None, everything=False) == 1


@only("other names and a uuid", "documents")
async def test_a_mark_ends_with_its_text_by_the_rule_and_by_the_sweep(adopted: StoreBench) -> None:
    older, newer = await adopted.add(BOILER), await adopted.add(KETTLE)
    table = await adopted.table()
    if "payload" in table.catalog:
        await adopted.execute(
            """UPDATE mem0 SET payload = payload || '{"created_at": "2026-04-01T10:00:00Z"}' WHERE id = $1""", newer
        )
    async with opened(adopted.source, "test") as connection:
        assert (await apply_proposals(connection, table, [await proposal(adopted, older, newer)])).applied == 1
        await connection.execute(adopted.store.edit, newer, f"{KETTLE} Again.")
        assert [one.undone_at is None for one in await steps(connection, table)] == [False]
        assert (await apply_proposals(connection, table, [await proposal(adopted, older, newer)])).applied == 1
        await connection.execute(f"ALTER TABLE {table.qualified} DISABLE TRIGGER USER")
        await connection.execute(adopted.store.edit, newer, KETTLE)
        await sweep_page(connection, table)
        assert [one.undone_at is None for one in await steps(connection, table)] == [False, False]


async def test_a_proposal_with_ids_of_another_kind_of_key_is_refused(adopted: StoreBench) -> None:
    table = await adopted.table()
    foreign = "17" if table.key.is_integer else 17
    one = Proposal(
        action=Action.UPDATE, decided_by=Decider.RULES, id=foreign, superseded_by=foreign, score=1.0, older="",
        newer="", text_hash="0" * 32, successor_hash="0" * 32,
    )  # fmt: skip
    async with opened(adopted.source, "test") as connection:
        with pytest.raises(InvalidInput, match="is no id of a memory"):
            await apply_proposals(connection, table, [one])


async def test_memories_are_drawn_and_read_by_their_ids_and_secrets_are_not(adopted: StoreBench) -> None:
    ids = [await adopted.add(f"{BOILER} {number}") for number in range(6)]
    if adopted.store.hide is not None:
        await adopted.add(SECRET, secret=True)
    table = await adopted.table()
    pool = await create_pool(adopted.source, max_size=1)
    try:
        store = PostgresStore(pool, table, [], None)
        drawn = await store.draw(10, seed=1, user=None, without=ids[:2])
        assert sorted(drawn) == sorted(ids[2:])
        assert await store.draw(2, seed=1, user=None, without=ids[:2]) == drawn[:2]
        shown = await store.read(ids[3], user="7" if "user_id" in table.columns else None)
        assert shown is not None
        assert shown.content == adopted.text(f"{BOILER} 3")
        if "created_at" in table.columns:
            assert shown.created is not None
            assert shown.created.startswith("20")
        assert await store.read("17" if table.key.is_integer else 17, user=None) is None
    finally:
        await pool.close()
