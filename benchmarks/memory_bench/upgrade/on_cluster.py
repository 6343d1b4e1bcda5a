"""Objects of 5ed9431's operator on a real cluster, which the present operator brings to head by itself."""

import asyncio
import json
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
from devcluster.images.project import build_former_operator
from devcluster.install import install_operator
from devcluster.postgres import Postgres, create_database
from memory_bench.report import console
from memory_bench.swap.load import question, texts
from memory_bench.upgrade.contents import QUERY, Contents, contents_of
from memory_bench.upgrade.former import COMMITS, LAST_COMMIT, CommandFailed, archive
from memory_bench.upgrade.outcome import Outcome, head_revision
from memory_bench.upgrade.recall_loop import SCRIPT, RecallLoop

ROWS = 60
OBJECT_STARTS = ("object-ready", "object-index-unbuilt")
_INDEX, _SECRET, _KEY = "mi", "dsn", "uri"
_POLL_SECONDS = 0.5
_PATIENCE_SECONDS = 240
_ANSWERS = 10  # of each client, before and after the upgrade
_INDEX_IS_BUILT = (
    "SELECT EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('idx_memories_embedding') AND indisready)"
)


@dataclass(frozen=True)
class Versions:
    """The images of both operators, the embedder's image, and the former chart."""

    former: str
    present: str
    embedder: str
    former_chart: Path


def load_versions(cluster: Cluster, directory: Path) -> Versions:
    """Build the images where needed and bring them into a cluster; the former sources lie below `directory`.

    Raises:
        HistoryMissing: this checkout has no git history that holds the former commit.
    """
    sources = archive(LAST_COMMIT, directory)
    former, packed = build_former_operator(sources, LAST_COMMIT)
    cluster.load(packed)
    images = devcluster.load_images(cluster)
    return Versions(former, images.operator, images.embedder, sources / "charts" / "memory-index")


def install_former(cluster: Cluster, versions: Versions) -> None:
    """Install 5ed9431's operator with its own chart, in the place of another one."""
    install_operator(
        cluster, operator_image=versions.former, embedder_image=versions.embedder, chart=versions.former_chart
    )


def install_present(cluster: Cluster, versions: Versions) -> None:
    """Install or upgrade to this checkout's operator."""
    install_operator(cluster, operator_image=versions.present, embedder_image=versions.embedder)


@dataclass(frozen=True)
class Home:
    """A namespace with a database, the Secret `dsn` with its connection string, and the MemoryIndex `mi`."""

    postgres: Postgres
    namespace: str

    @property
    def cluster(self) -> Cluster:
        """The cluster that it is in."""
        return self.postgres.cluster

    @property
    def database(self) -> str:
        """The name of database and role."""
        return self.namespace.replace("-", "_")

    def create(self) -> None:
        """Create namespace, database and Secret, with the consent that the present operator asks for."""
        self.postgres.allow(self.namespace)
        dsn = create_database(self.cluster, self.postgres, self.database)
        self.cluster.apply(objects.namespace(self.namespace))
        self.cluster.apply(objects.dsn_secret(self.namespace, _SECRET, _KEY, dsn))

    def kubectl(self, *arguments: str) -> str:
        """Run kubectl in the namespace."""
        return self.cluster.kubectl("-n", self.namespace, *arguments)

    def sql(self, statement: str) -> str:
        """Ask the database as its superuser."""
        return self.postgres.psql(statement, self.database)

    def start_toolboxes(self, versions: Versions) -> None:
        """Start a pod of each operator's image, in which recalls run with its library."""
        for name, image in (("former", versions.former), ("present", versions.present)):
            pod = objects.toolbox(
                self.namespace,
                name=name,
                image=image,
                secret=_SECRET,
                key=_KEY,
                embedder_url=f"http://{_INDEX}-embedder:8080",
            )
            self.cluster.apply(pod)
        self.kubectl("wait", "--for=condition=Ready", "pod/former", "pod/present", "--timeout=120s")

    def fill(self, memories: list[str]) -> None:
        """Create the table with the former `memory migrate`, which then waits for pgvector, and write memories."""
        try:
            self.kubectl("exec", "former", "--", "memory", "migrate", "--json")
        except CommandError as error:
            if "ExtensionMissing" not in str(error):
                raise
        values = ", ".join(f"('{text}', {number % 20 == 7})" for number, text in enumerate(memories))
        insert = f"INSERT INTO memories (content, is_sensitive) VALUES {values}"  # noqa: S608  (our own words)
        self.sql(f"SET ROLE {self.database}; {insert}")

    def apply_object(self) -> None:
        """Apply the MemoryIndex."""
        cluster = {"name": self.postgres.name, "namespace": self.postgres.namespace}
        credentials = {"secretName": _SECRET, "key": _KEY}
        self.cluster.apply(
            {
                "apiVersion": "memory-index.dev/v1alpha1",
                "kind": "MemoryIndex",
                "metadata": {"name": _INDEX, "namespace": self.namespace},
                "spec": {
                    "database": {"cluster": cluster, "name": self.database, "credentials": credentials},
                    "embedding": {"model": MODEL, "dimensions": DIMENSIONS},
                    "embedder": {"gpuLayers": 0},
                },
            }
        )

    def object(self) -> dict[str, Any]:
        """Return the MemoryIndex."""
        return dict(json.loads(self.kubectl("get", "memoryindex", _INDEX, "-o", "json")))

    def contents(self) -> Contents:
        """Read the digests of the table."""
        return contents_of(self.sql(QUERY))

    def worker_images(self) -> set[str]:
        """Return the images of all Deployments of the namespace."""
        listed = json.loads(self.kubectl("get", "deployments", "-o", "json"))["items"]
        return {one["image"] for item in listed for one in item["spec"]["template"]["spec"]["containers"]}

    async def spawn_recalls(self, which: str) -> Process:
        """Start the recall loop in the toolbox of that version."""
        command = ("exec", "-i", which, "--", "python", "-c", SCRIPT.read_text(encoding="utf-8"), which)
        return await asyncio.create_subprocess_exec(
            *self.cluster.kubectl_command("-n", self.namespace, *command), stdin=PIPE, stdout=PIPE, stderr=PIPE
        )


def _condition(index: Mapping[str, Any], kind: str) -> bool:
    return follow.view(index).condition(kind).status == "True"


async def _until(what: str, holds: Callable[[], bool]) -> None:
    """Wait until something is so.

    Raises:
        CommandFailed: it was not so within the patience.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not await asyncio.to_thread(holds):
        if time.monotonic() > deadline:
            raise CommandFailed(f"After {_PATIENCE_SECONDS} s still not: {what}.")
        await asyncio.sleep(_POLL_SECONDS)


@asynccontextmanager
async def _older_snapshot(home: Home) -> AsyncIterator[None]:
    """Hold a snapshot open in a session of the server, which an index that is built CONCURRENTLY waits for."""
    session = "FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(600)'"
    asleep = asyncio.create_task(asyncio.to_thread(_sleep, home))
    try:
        await _until("a snapshot is held", lambda: home.sql(f"SELECT count(*) {session}") == "1")
        yield
    finally:
        await asyncio.to_thread(home.sql, f"SELECT pg_terminate_backend(pid) {session}")
        await asleep


def _sleep(home: Home) -> None:
    try:
        home.sql("SELECT pg_sleep(600)")
    except CommandError as error:
        if "terminating connection" not in str(error):
            raise


async def _until_ready(home: Home) -> None:
    await _until(f"{home.namespace} is Ready", lambda: follow.view(home.object()).ready)


async def _until_index_is_being_built(home: Home) -> None:
    await _until("rows are embedded", lambda: _condition(home.object(), "Backfilled"))
    await _until("the index is being built", lambda: home.sql(_INDEX_IS_BUILT) == "t")


def _settled(home: Home, revision: str, *, without: str) -> bool:
    """Return whether the object is Ready, its schema at the revision, and no worker of that image is left."""
    index = home.object()
    found = (index["status"].get("database") or {}).get("schemaRevision")
    return found == revision and follow.view(index).ready and without not in home.worker_images()


async def upgrade_object(home: Home, versions: Versions, start: str) -> Outcome:
    """Bring an object to the start under the former operator, upgrade the operator, wait for head, and go back.

    The former operator runs at the call and at the end. `home` has been created.
    """
    outcome = Outcome(start, on_cluster=True)
    began = time.monotonic()
    memories = texts(ROWS)
    try:
        console.print(f"{start}: {ROWS} memories and an object under {LAST_COMMIT}'s operator")
        await asyncio.to_thread(home.start_toolboxes, versions)
        await asyncio.to_thread(home.fill, memories)
        await asyncio.to_thread(home.apply_object)
        async with AsyncExitStack() as stack:
            if start == "object-ready":
                await _until_ready(home)
            else:
                await _until("the schema is ready", lambda: _condition(home.object(), "SchemaReady"))
                await stack.enter_async_context(_older_snapshot(home))
                await _until_index_is_being_built(home)
            console.print(f"{start}: the state is reached; the operator is upgraded under recalls")
            await _upgrade_operator(home, versions, memories, outcome, release=stack)
    except CommandFailed as error:
        outcome.problem = str(error)
    outcome.seconds = round(time.monotonic() - began, 1)
    return outcome


async def _upgrade_operator(
    home: Home, versions: Versions, memories: list[str], outcome: Outcome, *, release: AsyncExitStack
) -> None:
    """Exchange the operator under recalls, and take it back; `release` lets an index build go on that was held."""
    generator = random.Random(3)  # noqa: S311  (a benchmark's data, the same in every run)
    questions = [question(text, generator) for text in generator.sample(memories, 20)]
    before = await asyncio.to_thread(home.contents)
    async with AsyncExitStack() as stack:
        loops = [
            await stack.enter_async_context(RecallLoop(which, partial(home.spawn_recalls, which), questions))
            for which in ("former", "present")
        ]
        try:
            for loop in loops:
                await loop.more(_ANSWERS)
            await asyncio.to_thread(install_present, home.cluster, versions)
            await release.aclose()
            await _until("Ready at head", lambda: _settled(home, head_revision(), without=versions.former))
            for loop in loops:
                await loop.until_complete()
                await loop.more(_ANSWERS)
            console.print(f"{outcome.start}: it is at head; the former operator takes over again")
            await asyncio.to_thread(install_former, home.cluster, versions)
            revision = COMMITS[LAST_COMMIT]
            await _until("Ready under the former operator", lambda: _settled(home, revision, without=versions.present))
            for loop in loops:
                await loop.more(_ANSWERS)
        finally:
            outcome.count(loops, before, await asyncio.to_thread(home.contents))


async def upgrade_objects(directory: Path, starts: list[str], report: Callable[[Outcome], None]) -> list[Outcome]:
    """Start a cluster of its own and upgrade an object from each start there."""
    outcomes = []
    with devcluster.start(f"bench-upgrade-{int(time.time())}") as cluster:
        devcluster.install_cnpg(cluster)
        versions = load_versions(cluster, directory)
        postgres = devcluster.create_postgres(cluster, reporter=devcluster.ConsoleReporter())
        install_former(cluster, versions)
        for start in starts:
            home = Home(postgres, start)
            home.create()
            outcomes.append(await upgrade_object(home, versions, start))
            report(outcomes[-1])
            home.kubectl("delete", "memoryindex", _INDEX, "--wait", "--timeout=60s")
    return outcomes
