"""Upgrades the operator on a real cluster from commit 5ed9431 to this checkout while recalls go on."""

import asyncio
import random
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import devcluster
from devcluster.cluster import Cluster
from devcluster.demo import follow, objects
from devcluster.demo.environment import DIMENSIONS, MODEL
from devcluster.errors import CommandError
from devcluster.images.project import ProjectImages
from devcluster.install import CHART, install_operator
from devcluster.postgres import Postgres, create_database
from memory_bench.report import console
from memory_bench.upgrade.contents import QUERY, Contents, parse_contents
from memory_bench.upgrade.former import COMMITS, LAST_COMMIT
from memory_bench.upgrade.outcome import Outcome, head_revision
from memory_bench.upgrade.versions import Versions, load_versions
from tests.support.cluster.api import INDEXES
from tests.support.invented import question, texts
from tests.support.recalling.loop import SCRIPT, CommandFailed, RecallLoop

ROWS = 60
OBJECT_STARTING_STATES = ("object-ready", "object-index-unbuilt")
_INDEX, _SECRET, _KEY = "mi", "dsn", "uri"
_POLL_SECONDS = 0.5
_TIMEOUT_SECONDS = 240
_ANSWERS = 10  # of each client, before and after the upgrade
_INDEX_IS_BUILT = (
    "SELECT EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('idx_memories_embedding') AND indisready)"
)


def install_former(cluster: Cluster, versions: Versions) -> None:
    """Install the operator of commit 5ed9431 with its own chart, in place of any installed operator."""
    _install(cluster, versions.former, versions.former_chart)


def install_present(cluster: Cluster, versions: Versions) -> None:
    """Install this checkout's operator with its chart, in place of any installed operator."""
    _install(cluster, versions.present, CHART)


def _install(cluster: Cluster, images: ProjectImages, chart: Path) -> None:
    install_operator(cluster, operator_image=images.operator, embedder_image=images.embedder, chart=chart)


@dataclass(frozen=True)
class UpgradeNamespace:
    """A namespace with a database, the Secret `dsn` with the database's connection string, and the MemoryIndex `mi`."""

    postgres: Postgres
    name: str

    @property
    def cluster(self) -> Cluster:
        """The Kubernetes cluster of this namespace."""
        return self.postgres.cluster

    @property
    def database(self) -> str:
        """The name of the database, and of the role that owns the database."""
        return self.name.replace("-", "_")

    def create(self) -> None:
        """Create the namespace, its database, and the Secret with the consent that the present operator requires."""
        self.postgres.allow(self.name)
        dsn = create_database(self.cluster, self.postgres, self.database)
        self.cluster.apply(objects.namespace(self.name))
        self.cluster.apply(objects.dsn_secret(self.name, _SECRET, _KEY, dsn))

    def kubectl(self, *arguments: str) -> str:
        """Run kubectl in this namespace and return its output."""
        return self.cluster.kubectl("-n", self.name, *arguments)

    def sql(self, statement: str) -> str:
        """Run an SQL statement in the database as superuser and return its output."""
        return self.postgres.psql(statement, self.database)

    def start_toolboxes(self, versions: Versions) -> None:
        """Start one pod of each operator image, in which recalls run with that image's library."""
        for name, images in (("former", versions.former), ("present", versions.present)):
            pod = objects.toolbox(
                self.name,
                name=name,
                image=images.operator,
                secret=_SECRET,
                key=_KEY,
                embedder_url=f"http://{_INDEX}-embedder:8080",
            )
            self.cluster.apply(pod)
        self.kubectl("wait", "--for=condition=Ready", "pod/former", "pod/present", "--timeout=120s")

    def fill(self, memories: list[str]) -> None:
        """Create the table with the former `memory migrate`, which may fail for want of pgvector; insert rows."""
        try:
            self.kubectl("exec", "former", "--", "memory", "migrate", "--json")
        except CommandError as error:
            if "ExtensionMissing" not in str(error):
                raise
        values = ", ".join(f"('{text}', {number % 20 == 7})" for number, text in enumerate(memories))
        insert = f"INSERT INTO memories (content, is_sensitive) VALUES {values}"  # noqa: S608  (our own words)
        self.sql(f"SET ROLE {self.database}; {insert}")

    def apply_object(self) -> None:
        """Apply the MemoryIndex `mi`."""
        cluster = {"name": self.postgres.name, "namespace": self.postgres.namespace}
        credentials = {"secretName": _SECRET, "key": _KEY}
        self.cluster.apply(
            {
                "apiVersion": "memory-index.dev/v1alpha1",
                "kind": "MemoryIndex",
                "metadata": {"name": _INDEX, "namespace": self.name},
                "spec": {
                    "database": {"cluster": cluster, "name": self.database, "credentials": credentials},
                    "embedding": {"model": MODEL, "dimensions": DIMENSIONS},
                    "embedder": {"gpuLayers": 0},
                },
            }
        )

    def object(self) -> dict[str, Any]:
        """Return the MemoryIndex `mi` as the Kubernetes API server returns it."""
        return dict(self.cluster.read(f"{INDEXES}/namespaces/{self.name}/memoryindexes/{_INDEX}"))

    def contents(self) -> Contents:
        """Return the digests of the table's rows and vectors."""
        return parse_contents(self.sql(QUERY))

    def worker_images(self) -> set[str]:
        """Return the images of all Deployments in this namespace."""
        listed = self.cluster.read(f"/apis/apps/v1/namespaces/{self.name}/deployments")["items"]
        return {one["image"] for item in listed for one in item["spec"]["template"]["spec"]["containers"]}

    async def spawn_recalls(self, which: str) -> Process:
        """Start the recall loop in a toolbox pod; `which` is "former" or "present" and selects the pod."""
        command = ("exec", "-i", which, "--", "python", "-c", SCRIPT.read_text(encoding="utf-8"), which)
        return await asyncio.create_subprocess_exec(
            *self.cluster.kubectl_command("-n", self.name, *command), stdin=PIPE, stdout=PIPE, stderr=PIPE
        )


def _condition(index: Mapping[str, Any], kind: str) -> bool:
    return follow.view(index).condition(kind).status == "True"


async def until(what: str, holds: Callable[[], bool]) -> None:
    """Wait until the condition `holds` returns True; an error message describes the condition with the text `what`.

    Raises:
        CommandFailed: `holds` still returns False after four minutes.
    """
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while not await asyncio.to_thread(holds):
        if time.monotonic() > deadline:
            raise CommandFailed(f"After {_TIMEOUT_SECONDS} s still not: {what}.")
        await asyncio.sleep(_POLL_SECONDS)


@asynccontextmanager
async def _older_snapshot(namespace: UpgradeNamespace) -> AsyncIterator[None]:
    """Hold a database snapshot open until the block ends, so that CREATE INDEX CONCURRENTLY waits that long."""
    session = "FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(600)'"
    asleep = asyncio.create_task(asyncio.to_thread(_sleep, namespace))
    try:
        await until("a snapshot is held", lambda: namespace.sql(f"SELECT count(*) {session}") == "1")
        yield
    finally:
        await asyncio.to_thread(namespace.sql, f"SELECT pg_terminate_backend(pid) {session}")
        await asleep


def _sleep(namespace: UpgradeNamespace) -> None:
    try:
        namespace.sql("SELECT pg_sleep(600)")
    except CommandError as error:
        if "terminating connection" not in str(error):
            raise


async def until_ready(namespace: UpgradeNamespace) -> None:
    """Wait until the MemoryIndex is Ready, at most four minutes."""
    await until(f"{namespace.name} is Ready", lambda: follow.view(namespace.object()).ready)


async def _until_index_is_being_built(namespace: UpgradeNamespace) -> None:
    await until("rows are embedded", lambda: _condition(namespace.object(), "Backfilled"))
    await until("the index is being built", lambda: namespace.sql(_INDEX_IS_BUILT) == "t")


def settled(namespace: UpgradeNamespace, revision: str, *, without: ProjectImages) -> bool:
    """Return whether the MemoryIndex is Ready at the schema `revision` and no Deployment uses the images `without`."""
    index = namespace.object()
    found, images = (index["status"].get("database") or {}).get("schemaRevision"), {without.operator, without.embedder}
    return found == revision and follow.view(index).ready and not namespace.worker_images() & images


async def upgrade_object(namespace: UpgradeNamespace, versions: Versions, start: str) -> Outcome:
    """Upgrade the operator of a MemoryIndex in the state `start`, downgrade it again, and return the outcome.

    The former operator must be installed; it brings the MemoryIndex to that state, and the downgrade restores it.
    """
    outcome = Outcome(start, on_cluster=True)
    began = time.monotonic()
    memories = texts(ROWS)
    try:
        console.print(f"{start}: {ROWS} memories and an object under {LAST_COMMIT}'s operator")
        await asyncio.to_thread(namespace.start_toolboxes, versions)
        await asyncio.to_thread(namespace.fill, memories)
        await asyncio.to_thread(namespace.apply_object)
        async with AsyncExitStack() as stack:
            if start == "object-ready":
                await until_ready(namespace)
            else:
                await until("the schema is ready", lambda: _condition(namespace.object(), "SchemaReady"))
                await stack.enter_async_context(_older_snapshot(namespace))
                await _until_index_is_being_built(namespace)
            console.print(f"{start}: the state is reached; the operator is upgraded under recalls")
            await _upgrade_operator(namespace, versions, memories, outcome, release=stack)
    except CommandFailed as error:
        outcome.problem = str(error)
    outcome.seconds = round(time.monotonic() - began, 1)
    return outcome


async def _upgrade_operator(
    namespace: UpgradeNamespace, versions: Versions, memories: list[str], outcome: Outcome, *, release: AsyncExitStack
) -> None:
    """Install the present operator, close `release` so that an index build goes on, and install the former operator."""
    generator = random.Random(3)  # noqa: S311  (a benchmark's data, the same in every run)
    questions = [question(text, generator) for text in generator.sample(memories, 20)]
    before = await asyncio.to_thread(namespace.contents)
    async with AsyncExitStack() as stack:
        loops = [
            await stack.enter_async_context(RecallLoop(which, partial(namespace.spawn_recalls, which), questions))
            for which in ("former", "present")
        ]
        try:
            for loop in loops:
                await loop.wait_for_answers(_ANSWERS)
            await asyncio.to_thread(install_present, namespace.cluster, versions)
            await release.aclose()
            await until("Ready at head", lambda: settled(namespace, head_revision(), without=versions.former))
            for loop in loops:
                await loop.wait_until_complete()
                await loop.wait_for_answers(_ANSWERS)
            console.print(f"{outcome.start}: it is at head; the former operator takes over again")
            await asyncio.to_thread(install_former, namespace.cluster, versions)
            revision = COMMITS[LAST_COMMIT]
            await until(
                "Ready under the former operator", lambda: settled(namespace, revision, without=versions.present)
            )
            for loop in loops:
                await loop.wait_for_answers(_ANSWERS)
        finally:
            outcome.count(loops, before, await asyncio.to_thread(namespace.contents))


async def upgrade_objects(directory: Path, starts: list[str], report: Callable[[Outcome], None]) -> list[Outcome]:
    """Start a cluster, and upgrade one MemoryIndex on it from each of the named starting states."""
    outcomes = []
    with devcluster.start(f"bench-upgrade-{int(time.time())}") as cluster:
        devcluster.install_cnpg(cluster)
        versions = load_versions(cluster, directory)
        postgres = devcluster.create_postgres(cluster, reporter=devcluster.ConsoleReporter())
        install_former(cluster, versions)
        for start in starts:
            namespace = UpgradeNamespace(postgres, start)
            namespace.create()
            outcomes.append(await upgrade_object(namespace, versions, start))
            report(outcomes[-1])
            namespace.kubectl("delete", "memoryindex", _INDEX, "--wait", "--timeout=60s")
    return outcomes
