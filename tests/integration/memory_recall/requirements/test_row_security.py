"""Row-level security that hides rows is refused by name, and the policy that the refusal names ends it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from memory_recall import RecallQuery
from memory_recall.errors import SchemaUnsupported
from memory_recall.postgres.connection import DsnText, create_pool
from memory_recall.schema.migrate import MigrationRequest, migrate
from memory_recall.search.hybrid_recall import HybridRecall
from memory_recall.search.options import RecallOptions
from memory_recall.status import inspect
from tests.integration.conftest import Database
from tests.integration.memory_recall.least_rights import LeastRights, least_rights
from tests.integration.memory_recall.workbench import Workbench
from tests.support.memory_command import run_memory

_OWN_ROWS = "CREATE POLICY own ON memories USING (user_id = current_setting('app.user', true))"
_QUERY = RecallQuery("kettle", user_id="default", mode="lexical")


@pytest.fixture
async def roles(bench: Workbench) -> AsyncIterator[LeastRights]:
    """Two memories, and both roles of `memory roles`, before anybody enables row-level security."""
    await bench.insert("the kettle", "another kettle")
    async with least_rights(bench) as made:
        yield made


async def _secure(bench: Workbench, *more: str) -> None:
    for statement in ("ALTER TABLE memories ENABLE ROW LEVEL SECURITY", _OWN_ROWS, *more):
        await bench.execute(statement)


async def _recalled(database: Database) -> list[int]:
    pool = await create_pool(DsnText(database.dsn), max_size=2)
    recall = HybridRecall(pool, None, RecallOptions(time_budget=60))
    try:
        return (await recall.recall(_QUERY)).ids
    finally:
        await recall.close()
        await pool.close()


async def _refusal(awaited: Any) -> SchemaUnsupported:
    with pytest.raises(SchemaUnsupported, match="Row-level security hides rows of") as refused:
        await awaited
    return refused.value


@pytest.mark.finding("database F9")
async def test_a_worker_from_whom_rows_are_hidden_is_refused_until_the_policy_is_there(
    bench: Workbench, roles: LeastRights
) -> None:
    await _secure(bench)
    working = replace(bench, database=roles.worker)
    refused = await _refusal(working.backfill())
    assert f"from the role {bench.database.name}_worker" in refused.message
    await bench.execute(refused.remedy.removeprefix("Run ").split(", or")[0])
    assert (await working.backfill()).tally.embedded == 2


@pytest.mark.finding("database F9")
async def test_a_recall_from_which_rows_are_hidden_is_refused_until_the_policy_is_there(
    bench: Workbench, roles: LeastRights
) -> None:
    await _secure(bench)
    refused = await _refusal(_recalled(roles.reader))
    assert "FOR SELECT" in refused.remedy
    await bench.execute(refused.remedy.removeprefix("Run ").split(", or")[0])
    assert sorted(await _recalled(roles.reader)) == [1, 2]


@pytest.mark.finding("database F9")
async def test_the_printed_script_has_the_policies_where_row_security_is_enabled(bench: Workbench) -> None:
    await bench.insert("the kettle")
    await _secure(bench)
    async with least_rights(bench) as made:
        assert (await replace(bench, database=made.worker).backfill()).tally.embedded == 1
        assert await _recalled(made.reader) == [1]


_EVERYTHING, _LESS = "CREATE POLICY everything ON memories", "CREATE POLICY less ON memories AS RESTRICTIVE"


@pytest.mark.finding("database F9")
@pytest.mark.parametrize(
    ("policies", "hidden"),
    [
        ([f"{_EVERYTHING} USING (true)"], False),
        ([f"{_EVERYTHING} FOR SELECT USING (true)"], True),  # the worker updates, too
        ([f"{_EVERYTHING} TO app USING (true)"], True),
        ([f"{_EVERYTHING} USING (true)", f"{_LESS} USING (id > 1)"], True),
        ([f"{_EVERYTHING} USING (true)", f"{_LESS} TO app USING (id > 1)"], False),
    ],
)
async def test_only_a_policy_that_shows_the_role_every_row_counts(
    bench: Workbench, roles: LeastRights, policies: list[str], hidden: bool
) -> None:
    await _secure(bench, *policies)
    working = replace(bench, database=roles.worker)
    if hidden:
        await _refusal(working.backfill())
    else:
        assert (await working.backfill()).tally.embedded == 2


@pytest.mark.finding("database F9")
async def test_a_role_that_bypasses_row_security_is_not_refused(bench: Workbench, roles: LeastRights) -> None:
    await _secure(bench)
    admin = await asyncpg.connect(bench.database.superuser_dsn)
    for kind in ("worker", "reader"):
        await admin.execute(f"ALTER ROLE {bench.database.name}_{kind} BYPASSRLS")
    await admin.close()
    assert (await replace(bench, database=roles.worker).backfill()).tally.embedded == 2
    assert len(await _recalled(roles.reader)) == 2


@pytest.mark.finding("database F9")
async def test_row_security_on_a_table_of_ours_is_refused_too(bench: Workbench, roles: LeastRights) -> None:
    """As where an event trigger of the database enables it on every new table."""
    await bench.execute("ALTER TABLE memory_supersessions ENABLE ROW LEVEL SECURITY")
    refused = await _refusal(_recalled(roles.reader))
    await bench.execute(refused.remedy.removeprefix("Run "))
    assert len(await _recalled(roles.reader)) == 2


@pytest.mark.finding("database F9")
async def test_forced_row_security_is_told_by_status_and_refused_by_migrate(
    bench: Workbench, request_for: Callable[..., MigrationRequest]
) -> None:
    await bench.insert("the kettle")
    await _secure(bench, "ALTER TABLE memories FORCE ROW LEVEL SECURITY")
    async with bench.database.connection() as connection:
        facts = await inspect(connection, "memories")
    assert facts.rows.total == 0, "the counts of a status that sees nothing"
    assert [fault.message for fault in facts.faults] == [
        'Row-level security hides rows of "public"."memories" from the role app.'
    ]
    assert not facts.schema_current
    await _refusal(migrate(DsnText(bench.database.dsn), request_for()))


@pytest.mark.finding("database F9")
async def test_a_worker_that_runs_already_notices_row_security(bench: Workbench, roles: LeastRights) -> None:
    working = replace(bench, database=roles.worker)
    bench.embedder.hold_after(0)
    running = asyncio.create_task(working.backfill())
    await bench.embedder.held.wait()
    await _secure(bench)
    bench.embedder.release()
    await _refusal(running)
    assert await bench.embedded() == 0


@pytest.mark.finding("database F9")
async def test_a_recall_that_is_open_already_notices_row_security(
    bench: Workbench, roles: LeastRights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory_recall.search.hybrid_recall._READINESS_SECONDS", 0.0)
    pool = await create_pool(DsnText(roles.reader.dsn), max_size=2)
    recall = HybridRecall(pool, None, RecallOptions(time_budget=60))
    assert len((await recall.recall(_QUERY)).ids) == 2
    await _secure(bench)
    with pytest.raises(SchemaUnsupported, match="Row-level security hides rows of"):
        await _until_it_fails(recall)
    await recall.close()
    await pool.close()


async def _until_it_fails(recall: HybridRecall) -> None:
    async with asyncio.timeout(60):
        while True:
            await recall.recall(_QUERY)
            await asyncio.sleep(0.01)


@pytest.mark.finding("database F9")
@pytest.mark.parametrize("command", ["export -", "import -", "questions collect labels.json --draw 3 --everyone"])
async def test_no_command_works_on_a_part_of_the_rows(
    bench: Workbench, roles: LeastRights, command: str, tmp_path: Path
) -> None:
    await _secure(bench)
    ended = await run_memory(command.split(), replace(bench, database=roles.reader).environment(), folder=tmp_path)
    assert (ended.status, b"Row-level security hides rows" in ended.errors) == (4, True), ended.errors.decode()
