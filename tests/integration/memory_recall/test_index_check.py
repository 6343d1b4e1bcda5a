"""The index check counts rows that stay as they are, ends with its worker, and never ends unheard before it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from memory_recall.cli import workers
from memory_recall.errors import MemoryIndexError
from memory_recall.hnsw import check
from memory_recall.hnsw.repair import IndexParameters, IndexReport, check_and_repair
from memory_recall.indexing.companions.index_check import IndexChecker
from memory_recall.indexing.progress import WorkerMetrics
from memory_recall.postgres.connection import Connection, DsnSource, DsnText
from memory_recall.schema.migrate import MigrationRequest
from memory_recall.schema.revisions import require_schema
from memory_recall.settings import Settings
from tests.integration.conftest import Database
from tests.integration.memory_recall.workbench import Workbench, migrate_and_index, until

Requests = Callable[..., MigrationRequest]
PARAMETERS = IndexParameters()
THRESHOLD = 0.85


def change_between_searches(monkeypatch: pytest.MonkeyPatch, database: Database, statement: str, rows: int) -> None:
    """Run a statement over the ids ($1) of the first `rows` sampled rows after the index was searched for them."""
    search = check._search

    async def then_change(connection: Connection, nearest: str, ids: list[int], **how: Any) -> Any:
        found = await search(connection, nearest, ids, **how)
        if not how["exact"]:
            async with database.connection() as other:
                await other.execute(statement, ids[:rows])
        return found

    monkeypatch.setattr(check, "_search", then_change)


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM memories WHERE id = ANY($1)",
        "UPDATE memories SET is_sensitive = true WHERE id = ANY($1)",
        "UPDATE memories SET content = 'edited' WHERE id = ANY($1)",
        "UPDATE memories SET embedding = '[8,7,6,5,4,3,2,1]' WHERE id = ANY($1)",
    ],
)
async def test_a_row_that_changes_during_the_index_check_does_not_count(
    filled: Connection, database: Database, request_for: Requests, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    await migrate_and_index(DsnText(database.dsn), request_for())
    table = await require_schema(filled, "memories")
    change_between_searches(monkeypatch, database, change, 20)
    assert (await check_and_repair(filled, table, PARAMETERS, sample=20, repair_below=None)).recall is None


async def test_the_other_rows_of_an_index_check_still_count(
    filled: Connection, database: Database, request_for: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrate_and_index(DsnText(database.dsn), request_for())
    table = await require_schema(filled, "memories")
    change_between_searches(monkeypatch, database, "DELETE FROM memories WHERE id = ANY($1)", 10)
    found = await check_and_repair(filled, table, PARAMETERS, sample=20, repair_below=None)
    assert found.recall is not None
    assert found.recall > 0.9


async def test_an_index_check_that_fails_is_repeated_at_the_next_interval(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that is not migrated is no reason to end."""
    checker = IndexChecker(PARAMETERS, THRESHOLD, 0.01, first_seconds=0)
    failed: list[str] = []
    attempt = checker._check

    async def noted(source: DsnSource, table: str) -> IndexReport:
        try:
            return await attempt(source, table)
        except MemoryIndexError as error:
            failed.append(error.reason)
            raise

    monkeypatch.setattr(checker, "_check", noted)
    stop = asyncio.Event()
    task = asyncio.create_task(checker.run(DsnText(database.dsn), "memories", WorkerMetrics(), stop))
    await until(lambda: len(failed) >= 2 or task.done())
    stop.set()
    await task
    assert len(failed) >= 2
    assert set(failed) == {"SchemaBehind"}


async def test_an_index_check_that_is_under_way_ends_with_its_worker(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rebuild may take hours; the worker ends within seconds of SIGTERM."""
    began, stop = asyncio.Event(), asyncio.Event()

    async def endless(*_arguments: object) -> IndexReport:
        began.set()
        await asyncio.sleep(3600)
        raise AssertionError

    checker = IndexChecker(PARAMETERS, THRESHOLD, 0.01)
    monkeypatch.setattr(checker, "_check", endless)
    task = asyncio.create_task(checker.run(DsnText(database.dsn), "memories", WorkerMetrics(), stop))
    async with asyncio.timeout(30):
        await began.wait()
        stop.set()
        await task


async def test_an_index_check_that_fails_unexpectedly_ends_the_sync_worker_with_its_error(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that nobody foresaw must not end the checks unheard while the worker seems well."""

    async def broken(*_arguments: object) -> IndexReport:
        raise ZeroDivisionError

    for name, value in bench.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(workers, "_INDEX_CHECK_SECONDS", 0.01)
    monkeypatch.setattr(IndexChecker, "_check", broken)
    with pytest.raises(ZeroDivisionError):
        async with asyncio.timeout(30):
            await workers._sync(Settings())
