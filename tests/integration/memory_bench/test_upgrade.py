"""Databases of former revisions reach head without a failing recall and without losing a row or a vector.

The states are made by the former commits' own commands, taken from git's history. `make bench-upgrade` goes through all
of them, and through objects on a cluster; a few stand for them here.
"""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from memory_bench.upgrade.contents import QUERY, parse_contents
from memory_bench.upgrade.former import LAST_COMMIT, former_sources
from memory_bench.upgrade.on_database import upgrade_database
from memory_bench.upgrade.starts import BY_NAME, HNSW, make
from memory_bench.upgrade.workshop import UpgradeEnvironment, running_environment
from tests.support.recalling.loop import SCRIPT, RecallLoop

LOST_ROWS, LOST_VECTORS = 3, 10


@pytest.fixture
async def environment(tmp_path: Path) -> AsyncIterator[UpgradeEnvironment]:
    """A server, embedders, and the former commits; it fails where this checkout has no history."""
    async with running_environment(former_sources(tmp_path)) as made:
        yield made


@pytest.mark.parametrize("name", ["0001-killed-in-index", "0004-swap-ready"])
async def test_a_database_of_a_former_revision_reaches_head_while_both_libraries_recall(
    environment: UpgradeEnvironment, name: str
) -> None:
    outcome = await upgrade_database(environment, BY_NAME[name])
    assert outcome.problem is None
    assert (outcome.recall_errors, outcome.rows_lost, outcome.vectors_lost) == (0, 0, 0), outcome.faults
    assert outcome.recalls > 0


async def test_lost_rows_lost_vectors_and_a_lost_index_are_counted(environment: UpgradeEnvironment) -> None:
    start = BY_NAME["0003-vectors"]
    await make(environment, start)
    variables = environment.variables(start.name)
    spawn = partial(environment.former[LAST_COMMIT].python, str(SCRIPT), "former", variables=variables)
    async with environment.connection(start.name) as connection, RecallLoop("former", spawn, ["a word"]) as loop:
        await loop.wait_until_complete()
        before = parse_contents(await connection.fetchval(QUERY))
        assert loop.faults() == []
        await connection.execute(f"DROP INDEX {HNSW}")
        await connection.execute("UPDATE memories SET embedding = NULL WHERE id <= $1", LOST_VECTORS)
        await connection.execute("UPDATE memories SET tags = 'changed' WHERE id <= $1", LOST_ROWS)
        await loop.wait_for_answers(10)
        after = parse_contents(await connection.fetchval(QUERY))
    assert before.rows_lost_in(after) == LOST_ROWS
    assert before.vectors_lost_in(after) == LOST_VECTORS - 1  # row 7 is sensitive and had none
    assert "former library: degraded: IndexMissing" in loop.faults()
