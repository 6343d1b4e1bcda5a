"""Storing a vector is no edit of a memory: what triggers of the table's owner would change then is undone."""

import pytest

from tests.integration.memory_recall.swap.conftest import SwapBench
from tests.integration.memory_recall.workbench import Workbench

_ROWS = "INSERT INTO memories (content, updated_at) SELECT 'text ' || n, '2020-01-01' FROM generate_series(1, 3) n"
_CHANGED = "SELECT count(*) FROM memories WHERE updated_at > '2020-01-01'"
_GUARDED = "SET memory_index.writer = 'guarded'; "


async def add_trigger(bench: Workbench, body: str, firing: str = "BEFORE UPDATE") -> None:
    await bench.execute(
        f"CREATE FUNCTION of_the_owner() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} RETURN NEW; END $$"
    )
    await bench.execute(
        f"CREATE TRIGGER of_the_owner {firing} ON memories FOR EACH ROW EXECUTE FUNCTION of_the_owner()"
    )


async def test_a_trigger_that_notes_the_time_of_an_edit_notes_none_in_a_backfill(bench: Workbench) -> None:
    await bench.execute(_ROWS)
    await add_trigger(bench, "NEW.updated_at := now();")
    await bench.backfill()
    assert (await bench.embedded(), await bench.value(_CHANGED)) == (3, 0)
    await bench.execute("UPDATE memories SET importance = 1 WHERE id = 1")
    assert await bench.value(_CHANGED) == 1


async def test_a_trigger_that_notes_the_time_of_an_edit_notes_none_in_a_swap(swaps: SwapBench) -> None:
    await swaps.work.execute("UPDATE memories SET updated_at = '2020-01-01'")
    await add_trigger(swaps.work, "NEW.updated_at := now();")
    assert (await swaps.swap()).stage == "flipped"
    assert (await swaps.problems(), await swaps.work.value(_CHANGED)) == ([], 0)


async def test_a_row_that_a_trigger_makes_sensitive_at_a_backfill_stays_sensitive_and_has_no_vector(
    bench: Workbench,
) -> None:
    await bench.insert("one", "two")
    await add_trigger(bench, "NEW.is_sensitive := NEW.content = 'one';")
    await bench.backfill()
    assert await bench.value("SELECT array_agg(content ORDER BY id) FROM memories WHERE is_sensitive") == ["one"]
    assert (await bench.embedded(), await bench.problems()) == (1, [])


async def test_what_a_trigger_of_the_owner_writes_to_other_memories_stays(bench: Workbench) -> None:
    await bench.insert("one", "two")
    await add_trigger(
        bench,
        "IF pg_trigger_depth() = 1 THEN UPDATE memories SET tags = 'seen' WHERE id <> NEW.id AND content = 'two'; "
        "END IF;",
        "AFTER UPDATE",
    )
    await bench.backfill()
    assert await bench.value("SELECT tags FROM memories WHERE content = 'two'") == "seen"


@pytest.mark.parametrize(
    ("change", "expected"),
    [("content = 'public'", ("secret", True)), ("is_sensitive = false", ("secret", True))],
)
async def test_an_edit_by_somebody_who_sets_our_writers_setting_does_not_happen(
    bench: Workbench, change: str, expected: tuple[str, bool]
) -> None:
    await bench.execute("INSERT INTO memories (content, is_sensitive) VALUES ('secret', true)")
    await bench.execute(f"{_GUARDED} UPDATE memories SET {change}, embedding = array_fill(0.5, ARRAY[8])::halfvec")
    row = await bench.value("SELECT (content, is_sensitive, embedding IS NULL) FROM memories")
    assert tuple(row) == (*expected, True)
