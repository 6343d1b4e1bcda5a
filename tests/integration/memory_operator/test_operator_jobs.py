"""The commands and variables of the operator's Jobs, run as they are against a real Postgres."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from memory_operator.api.conditions import Verdict
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import Graph, MemoryIndex
from memory_operator.clients.database import DatabaseClient
from memory_operator.reconcile.authorization.claims import is_claimed_by
from memory_operator.reconcile.authorization.identity import identified
from memory_operator.reconcile.authorization.permissions import Permitted
from memory_operator.reconcile.context import Context
from memory_operator.reconcile.indexing.graph import plan_graph
from memory_operator.resources import workers
from memory_operator.resources.common import Images
from memory_recall.postgres.connection import DsnText
from memory_recall.status import DatabaseFacts
from tests.integration.conftest import CopyOf, Database
from tests.support.memory_command import run_memory
from tests.unit.memory_operator.conftest import START, World, anywhere

NEEDS_PERSON = 4


@dataclass(frozen=True)
class Ended:
    """Exit status of a Job's process and the reason that it reported."""

    status: int
    reason: str


@dataclass(frozen=True)
class Bench:
    """A database with a Secret's file, and the objects over it."""

    database: Database
    dsn_file: Path

    async def facts(self) -> DatabaseFacts:
        found = (await DatabaseClient(anywhere).inspect(DsnText(self.database.dsn), "memories", "team")).found
        assert isinstance(found, DatabaseFacts), found
        return found

    async def index(self, name: str, uid: str) -> MemoryIndex:
        index = World().index(database={"name": self.database.name, "cluster": None})  # without TLS, as this server
        return identified(index.model_copy(update={"name": name, "uid": uid}), None, await self.facts(), "")

    async def run(self, job: dict[str, Any]) -> Ended:
        (container,) = job["spec"]["template"]["spec"]["containers"]
        variables = {item["name"]: item["value"] for item in container["env"]}
        variables["MEMORY_DATABASE_URL_FILE"] = str(self.dsn_file)
        program, *arguments = container["command"]
        assert program == "memory"
        ended = await run_memory(arguments, variables)
        lines = [line for line in ended.errors.splitlines() if line.startswith(b'{"reason"')]
        return Ended(ended.status, orjson.loads(lines[-1])["reason"] if lines else "")


def bench_of(database: Database, folder: Path) -> Bench:
    file = folder / f"dsn of {database.name}"
    file.write_text(database.dsn)
    return Bench(database, file)


@pytest.fixture
def bench(database: Database, tmp_path: Path) -> Bench:
    return bench_of(database, tmp_path)


@pytest.fixture
async def claimed(copy_of: CopyOf, tmp_path: Path) -> Bench:
    """A database that the migration Job of the object `first` (`u-1`) has migrated."""

    async def fill(empty: Database) -> None:
        made = bench_of(empty, tmp_path)
        assert await made.run(workers.migrate_job(await made.index("first", "u-1"), Images(), 0)) == Ended(0, "")

    return bench_of(await copy_of("claimed by first", fill), tmp_path)


async def test_the_migration_job_claims_the_table_and_refuses_a_second_object(bench: Bench) -> None:
    first, second = await bench.index("first", "u-1"), await bench.index("second", "u-2")
    assert await bench.run(workers.migrate_job(first, Images(), 0)) == Ended(0, "")
    facts = await bench.facts()
    assert is_claimed_by(first, facts)
    assert not is_claimed_by(second, facts)
    assert facts.table_schema == "public"
    assert await bench.run(workers.migrate_job(second, Images(), 0)) == Ended(NEEDS_PERSON, "TableTaken")
    assert await bench.run(workers.uninstall_job(second, Images(), 0)) == Ended(NEEDS_PERSON, "TableTaken")
    assert is_claimed_by(first, await bench.facts())
    assert await bench.run(workers.uninstall_job(first, Images(), 0)) == Ended(0, "")
    assert (await bench.facts()).schema_revision is None


async def test_the_migration_job_of_an_object_that_was_created_again_takes_over(claimed: Bench) -> None:
    present = await claimed.index("first", "u-2")
    assert await claimed.run(workers.migrate_job(present, Images(), 0, former="u-1")) == Ended(0, "")
    assert is_claimed_by(present, await claimed.facts())


async def test_the_migration_job_needs_a_decision_about_the_vectors_of_an_exchanged_table(claimed: Bench) -> None:
    """Until then the schema stays behind, so that no worker starts; the decision is the field of the specification."""
    index = await claimed.index("first", "u-1")
    async with claimed.database.connection() as connection:
        await connection.execute("ALTER TABLE memories RENAME TO former")
        await connection.execute("CREATE TABLE memories (LIKE former INCLUDING ALL)")
        await connection.execute(
            "INSERT INTO memories (content, embedding) VALUES ('one', array_fill(0.5::real, ARRAY[384])::halfvec)"
        )
    assert await claimed.run(workers.migrate_job(index, Images(), 0)) == Ended(NEEDS_PERSON, "ExistingVectors")
    facts = await claimed.facts()
    assert (facts.schema_current, facts.rows.embedded) == (False, 1)
    decided = index.spec.database.model_copy(update={"existing_vectors": "Discard"})
    index = index.model_copy(update={"spec": index.spec.model_copy(update={"database": decided})})
    assert await claimed.run(workers.migrate_job(index, Images(), 0)) == Ended(0, "")
    facts = await claimed.facts()
    assert (facts.schema_current, facts.rows.embedded) == (True, 0)


async def test_after_each_job_the_graph_is_in_the_specified_state(claimed: Bench) -> None:
    """Enabled twice, kept, enabled again, dropped; what a Job has done is nothing to be done for the next reconcile."""
    created = await claimed.index("first", "u-1")
    for enabled, policy, found in (
        (True, "Retain", "enabled"),
        (True, "Retain", "enabled"),
        (False, "Retain", "kept"),
        (True, "Delete", "enabled"),
        (False, "Delete", "gone"),
        (False, "Retain", "gone"),
    ):
        spec = created.spec.model_copy(update={"graph": Graph(enabled=enabled), "deletion_policy": policy})
        index = created.model_copy(update={"spec": spec})
        assert await claimed.run(workers.graph_job(index, Images(), 0)) == Ended(0, "")
        facts = await claimed.facts()
        graph = facts.graph
        assert graph is not None
        assert (graph.enabled, graph.kept, graph.exists) == (found == "enabled", found == "kept", found != "gone")
        assert facts.schema_current, "the rules of the graph are no difference of the schema"
        context = Context(index, World().observed(database=facts), Images(), START, Permitted())
        step = plan_graph(context, schema=Verdict.yes(Reason.MIGRATED, ""))
        assert step is None if found == "gone" else step is not None
        assert step is None or step.actions == ()


async def test_the_uninstall_job_drops_the_graph(claimed: Bench) -> None:
    created = await claimed.index("first", "u-1")
    index = created.model_copy(update={"spec": created.spec.model_copy(update={"graph": Graph(enabled=True)})})
    await claimed.run(workers.graph_job(index, Images(), 0))
    assert await claimed.run(workers.uninstall_job(index, Images(), 0)) == Ended(0, "")
    async with claimed.database.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM pg_class WHERE relname LIKE 'memory\\_%'") == 0
        assert await connection.fetchval("SELECT count(*) FROM pg_proc WHERE proname LIKE 'memory\\_%'") == 0


@pytest.mark.promise("same-database-only")
@pytest.mark.finding("D2")
@pytest.mark.parametrize("component", ["migrate", "uninstall", "index", "backfill", "graph"])
async def test_no_job_does_anything_on_another_server(claimed: Bench, component: str) -> None:
    builders = {
        "migrate": workers.migrate_job,
        "uninstall": workers.uninstall_job,
        "index": workers.index_job,
        "backfill": workers.backfill_job,
        "graph": workers.graph_job,
    }
    index = await claimed.index("first", "u-1")
    before = await claimed.facts()
    elsewhere = index.model_copy(update={"system_identifier": "1"})
    assert await claimed.run(builders[component](elsewhere, Images(), 0)) == Ended(
        NEEDS_PERSON, "DatabaseIdentityMismatch"
    )
    assert await claimed.facts() == before
