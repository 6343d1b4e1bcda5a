"""`make bench-upgrade` upgrades what the baseline made under recalls, and counts what is lost.

Its dump was made by the baseline, revision 0001, with rows, vectors and an index. It is never written again.
"""

import os
from collections.abc import AsyncIterator
from functools import partial

import pytest
import pytest_asyncio

from memory_bench.postgres import MIGRATIONS
from memory_bench.swap.models import DIMENSIONS
from memory_bench.upgrade.contents import QUERY, parse_contents
from memory_bench.upgrade.environment import MODEL, UpgradeEnvironment, running_environment
from memory_bench.upgrade.on_database import upgrade_database
from memory_bench.upgrade.states import BY_NAME, DUMP, HNSW
from memory_recall.embedding.profiles import ModelProfile
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.migrate import MigrationRequest, migrate
from tests.integration.conftest import CopyOf, Database
from tests.integration.memory_recall.test_migrate_declared import DECLARED, dump_schema
from tests.support.memory_command import run_memory
from tests.support.recalling.loop import RecallLoop

REQUEST = MigrationRequest("memories", ModelProfile(MODEL, DIMENSIONS), MIGRATIONS)
LOST_ROWS, LOST_VECTORS = 3, 10


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def environment() -> AsyncIterator[UpgradeEnvironment]:
    """A server, in which each test has a database of its own, and an embedder."""
    async with running_environment() as made:
        yield made


class Forking(UpgradeEnvironment):
    """The same with commands that are forked, instead of started as the benchmark starts them."""

    async def memory(self, database: str, *arguments: str) -> str:
        """Run the command, and return its standard output."""
        settings = {
            **{name: None for name in os.environ if name.startswith("MEMORY_")},
            "MEMORY_DATABASE_URL": self._dsn(database),
            "MEMORY_MODEL": MODEL,
            "MEMORY_DIMENSIONS": str(DIMENSIONS),
            "MEMORY_EMBEDDER_URL": self._embedder_url,
        }
        ended = await run_memory(arguments, settings)
        assert ended.status == 0, ended.errors
        return ended.output.decode()


async def restore(database: Database) -> None:
    async with database.connection() as connection:
        await connection.execute(DUMP.read_text(encoding="utf-8"))


async def test_the_dump_when_it_is_migrated_has_the_schema_of_a_new_database(copy_of: CopyOf) -> None:
    restored = await copy_of("the restored dump", restore)
    await migrate(DsnText(restored.dsn), REQUEST)
    declared = DECLARED.read_text().replace("halfvec(384)", f"halfvec({DIMENSIONS})")
    assert declared.endswith(await dump_schema(restored))


@pytest.mark.parametrize(("name", "kind"), [("pending", UpgradeEnvironment), ("index-dropped", Forking)])
async def test_a_database_of_the_baseline_reaches_head_while_memories_are_recalled(
    environment: UpgradeEnvironment, name: str, kind: type[UpgradeEnvironment]
) -> None:
    chosen = kind(environment._server, environment._embedder_url)
    outcome = await upgrade_database(chosen, BY_NAME[name])
    assert outcome.problem is None
    assert (outcome.recall_errors, outcome.rows_lost, outcome.vectors_lost) == (0, 0, 0), outcome.faults
    assert outcome.recalls > 0


async def test_lost_rows_lost_vectors_and_a_lost_index_are_counted(environment: UpgradeEnvironment) -> None:
    start = BY_NAME["vectors"]
    await environment.restore(start)
    spawn = partial(environment.spawn_recalls, start.name)
    async with environment.connection(start.name) as connection, RecallLoop("present", spawn, ["a word"]) as loop:
        await loop.wait_until_complete()
        before = parse_contents(await connection.fetchval(QUERY))
        assert loop.faults() == []
        await connection.execute(f"DROP INDEX {HNSW}")
        await connection.execute("UPDATE memories SET embedding = NULL WHERE id <= $1", LOST_VECTORS)
        await connection.execute("UPDATE memories SET tags = 'changed' WHERE id <= $1", LOST_ROWS)
        await loop.wait_for_answers(10)
        after = parse_contents(await connection.fetchval(QUERY))
    assert before.rows_lost_in(after) == LOST_ROWS
    assert before.vectors_lost_in(after) == LOST_VECTORS - 1  # row 8 is sensitive and had none
    assert "present library: degraded: IndexMissing" in loop.faults()
