"""Databases of former revisions reach head without a failing recall and without losing a row or a vector.

The states are made by the former commits' own commands, taken from git's history. `make bench-upgrade` goes through all
of them, and through objects on a cluster; a few stand for them here.
"""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from memory_bench.upgrade.contents import QUERY, contents_of
from memory_bench.upgrade.former import LAST_COMMIT, former_sources
from memory_bench.upgrade.on_database import upgrade_database
from memory_bench.upgrade.recall_loop import SCRIPT, RecallLoop
from memory_bench.upgrade.starts import BY_NAME, HNSW, make
from memory_bench.upgrade.workshop import Workshop, opened

LOST_ROWS, LOST_VECTORS = 3, 10


@pytest.fixture
async def workshop(tmp_path: Path) -> AsyncIterator[Workshop]:
    """A server, embedders, and the former commits; it fails where this checkout has no history."""
    async with opened(former_sources(tmp_path)) as made:
        yield made


@pytest.mark.parametrize("name", ["0001-killed-in-index", "0004-swap-ready"])
async def test_a_database_of_a_former_revision_reaches_head_while_both_libraries_recall(
    workshop: Workshop, name: str
) -> None:
    outcome = await upgrade_database(workshop, BY_NAME[name])
    assert outcome.problem is None
    assert (outcome.recall_errors, outcome.rows_lost, outcome.vectors_lost) == (0, 0, 0), outcome.faults
    assert outcome.recalls > 0


async def test_lost_rows_lost_vectors_and_a_lost_index_are_counted(workshop: Workshop) -> None:
    start = BY_NAME["0003-vectors"]
    await make(workshop, start)
    variables = workshop.variables(start.name)
    spawn = partial(workshop.former[LAST_COMMIT].python, str(SCRIPT), "former", variables=variables)
    async with workshop.connection(start.name) as connection, RecallLoop("former", spawn, ["a word"]) as loop:
        await loop.until_complete()
        before = contents_of(await connection.fetchval(QUERY))
        assert loop.faults() == []
        await connection.execute(f"DROP INDEX {HNSW}")
        await connection.execute("UPDATE memories SET embedding = NULL WHERE id <= $1", LOST_VECTORS)
        await connection.execute("UPDATE memories SET tags = 'changed' WHERE id <= $1", LOST_ROWS)
        await loop.more(10)
        after = contents_of(await connection.fetchval(QUERY))
    assert before.rows_lost_in(after) == LOST_ROWS
    assert before.vectors_lost_in(after) == LOST_VECTORS - 1  # row 7 is sensitive and had none
    assert "former library: degraded: IndexMissing" in loop.faults()
