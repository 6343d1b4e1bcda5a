"""What the tests of the store share: a migration request for a small model."""

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pgvector.asyncpg import register_vector

from memory_recall.embedding.profiles import ModelProfile
from memory_recall.postgres.connection import Connection, DsnText, opened
from memory_recall.schema.migrate import MigrationRequest, migrate
from memory_recall.search.fusion import Fusion
from tests.integration.conftest import CopyOf, Database
from tests.integration.memory_recall.fake_embedder import FakeEmbedder
from tests.integration.memory_recall.partitioned import create_partitioned
from tests.integration.memory_recall.workbench import DIMENSIONS, EmbeddedAgain, Workbench, workbench

AGAIN = pytest.StashKey[list[str]]()
REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture
def request_for() -> Callable[..., MigrationRequest]:
    """Builds a migration request for a model of 8 dimensions; keyword arguments override it."""

    def build(*, dimensions: int = 8, model: str = "tiny", **changes: Any) -> MigrationRequest:
        return MigrationRequest(
            **{
                "table": "memories",
                "model": ModelProfile(model, dimensions, 256, "mean"),
                "migrations": REPOSITORY / "migrations",
                "lock_seconds": 20,
                **changes,
            }
        )

    return build


@pytest.fixture
async def migrated(copy_of: CopyOf, request_for: Callable[..., MigrationRequest]) -> Database:
    """A migrated database without rows."""
    return await copy_of("migrated", lambda empty: migrate(DsnText(empty.dsn), request_for()))


@pytest.fixture
async def bench(migrated: Database) -> AsyncIterator[Workbench]:
    """A migrated database with a running embedder, on the session's server."""
    async with FakeEmbedder(dimensions=DIMENSIONS) as embedder:
        yield Workbench(migrated, embedder)


async def fill_with_vectors(database: Database, request: MigrationRequest) -> None:
    """Migrate a database and insert 800 rows with vectors, without building the index."""
    await migrate(DsnText(database.dsn), request)
    async with database.connection() as connection:
        await register_vector(connection)
        vectors = np.random.default_rng(1).standard_normal((800, 8)).astype(np.float32)
        await connection.copy_records_to_table(
            "memories",
            records=[(f"text {n}", vector) for n, vector in enumerate(vectors)],
            columns=["content", "embedding"],
        )


@pytest.fixture
async def filled(database: Database, request_for: Callable[..., MigrationRequest]) -> AsyncIterator[Connection]:
    """A migrated database of 800 rows with vectors, without the index."""
    await fill_with_vectors(database, request_for())
    async with opened(DsnText(database.dsn), "testing") as connection:
        yield connection


@pytest.fixture
def few_fusions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only two fusions are tried where the commands try many, since each costs a recall for every question."""
    few = [Fusion(), Fusion(alpha=0.5)]
    monkeypatch.setattr("memory_recall.contrib.labelling.store.fusions", lambda _default: few)
    monkeypatch.setattr("memory_recall.cli.tune.settings", lambda _default: few)


@pytest.fixture
async def partitioned_bench(copy_of: CopyOf, request_for: Callable[..., MigrationRequest]) -> AsyncIterator[Workbench]:
    """A migrated partitioned table of four users without rows, with a running embedder."""
    database = await copy_of("migrated partitions", lambda empty: create_partitioned(empty, request_for()))
    async with FakeEmbedder(dimensions=DIMENSIONS) as embedder:
        yield Workbench(database, embedder)


@pytest.fixture
async def own_bench(own_database: Database, request_for: Callable[..., MigrationRequest]) -> AsyncIterator[Workbench]:
    """The same on a server that the test may stop."""
    async with workbench(own_database, request_for()) as made:
        yield made


@pytest.fixture
def embedded_again(request: pytest.FixtureRequest) -> EmbeddedAgain:
    """Counts the finished rows whose text was sent once more, and has the number printed at the end of the run."""

    def count(bench: Workbench, finished: Collection[str], sent: Mapping[str, int]) -> int:
        again = sum(bench.embedder.received[text] - sent.get(text, 0) for text in finished)
        lines = request.config.stash.setdefault(AGAIN, [])
        lines.append(f"{request.node.name}: {again} of {len(finished)}")
        return again

    return count


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what `embedded_again` counted."""
    lines = config.stash.get(AGAIN, [])
    if lines:
        terminalreporter.section("finished rows that were embedded again")
        for line in lines:
            terminalreporter.line(line)
