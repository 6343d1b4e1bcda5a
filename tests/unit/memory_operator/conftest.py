"""Plain data in place of a cluster: an index, facts about it, and a cluster that executes plans without a network.

`World` makes the inputs of one reconcile and returns its plan. `Cluster` goes through a whole life cycle: what a plan
applies is observed by the next reconcile, Jobs end when the test says so, and the database changes as the real commands
change it.
"""

import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memory_operator.api.spec import FINALIZER, Manifest, MemoryIndex, parse
from memory_operator.clients import object_facts
from memory_operator.reconcile.core import RequeueIntervals, acknowledge, reconcile
from memory_operator.reconcile.facts import (
    ClusterFacts,
    Credentials,
    DatabaseFacts,
    DeploymentFacts,
    JobFacts,
    JobState,
    Observed,
    Problem,
)
from memory_operator.reconcile.plan import Apply, Delete, Plan, SetFinalizer
from memory_operator.resources.cnpg import DatabaseObject
from memory_operator.resources.common import Images
from memory_recall.schema.revisions import HEAD_REVISION
from memory_recall.status import RowCounts

START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
PASSWORD = "s3cret-pa55word"
FULL = DatabaseFacts(
    extension_version="0.8.7",
    extension_available="0.8.7",
    schema_revision=HEAD_REVISION,
    schema_current=True,
    column_dimensions=384,
    active_model="all-MiniLM-L6-v2",
    rows=RowCounts(total=100, embedded=90, pending=0, sensitive=10),
    index_valid=True,
)
EMPTY = DatabaseFacts(extension_available="0.8.7", rows=RowCounts())


def deep_update(base: Manifest, changes: Manifest) -> Manifest:
    merged = copy.deepcopy(base)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = deep_update(merged[key], value) if both else value
    return merged


@dataclass
class World:
    """Makes the inputs of a reconcile, and plans."""

    images: Images = field(default_factory=lambda: Images(operator="op:1", embedder="emb:1"))
    now: datetime = START
    intervals: RequeueIntervals = field(default_factory=lambda: RequeueIntervals(settled=30.0))

    def manifest(self, **spec: Any) -> Manifest:
        base = {
            "database": {
                "name": "app",
                "cluster": {"name": "pg", "namespace": "dbaas"},
                "credentials": {"secretName": "dsn", "key": "uri"},
            },
            "embedding": {"model": "all-MiniLM-L6-v2", "dimensions": 384},
            "embedder": {"gpuLayers": 0},
        }
        return {
            "apiVersion": "memory-index.dev/v1alpha1",
            "kind": "MemoryIndex",
            "metadata": {"name": "mem", "namespace": "team", "uid": "u-1", "generation": 1, "finalizers": [FINALIZER]},
            "spec": deep_update(base, spec),
            "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]},
        }

    def index(self, **spec: Any) -> MemoryIndex:
        return parse(self.manifest(**spec))

    def observed(self, **facts: Any) -> Observed:
        base = Observed(
            credentials=Credentials(user="owner", database="app"),
            cluster=ClusterFacts("dbaas", "pg", phase=object_facts.HEALTHY_PHASE),
            database=FULL,
        )
        return replace(base, **facts)

    def decide(self, index: MemoryIndex | None = None, **facts: Any) -> Plan:
        return reconcile(index or self.index(), self.observed(**facts), self.images, self.now, self.intervals)

    def decide_again(self, plan: Plan, seconds: float, index: MemoryIndex | None = None, **facts: Any) -> Plan:
        """The plan for the same facts after a time, where the status of the first plan has been written."""
        self.now += timedelta(seconds=seconds)
        written = (index or self.index()).model_copy(update={"status": plan.status})
        return self.decide(written, **facts)

    def settled(self, **spec: Any) -> tuple[MemoryIndex, Observed, Plan]:
        """A settled index, the facts about it, and its last plan."""
        cluster = Cluster(self, self.manifest(**spec))
        cluster.database = replace(FULL)
        for _ in range(5):
            cluster.reconcile()
        plan = cluster.reconcile()
        return cluster.index, cluster.observe(), plan


@dataclass
class Cluster:
    """Executes plans. Deployments become ready at once; Jobs end through `finish`."""

    world: World
    manifest: Manifest
    database: DatabaseFacts | Problem = EMPTY
    cnpg: dict[str, Manifest] = field(default_factory=dict)
    children: dict[tuple[str, str], Manifest] = field(default_factory=dict)
    jobs: dict[str, JobFacts] = field(default_factory=dict)
    writes: list[str] = field(default_factory=list)
    gone: bool = False

    @property
    def index(self) -> MemoryIndex:
        return parse(self.manifest)

    def observe(self) -> Observed:
        deployments = {name: item for (kind, name), item in self.children.items() if kind == "Deployment"}
        return self.world.observed(
            database=self.database,
            database_objects=tuple(object_facts.database_object(item) for item in self.cnpg.values()),
            jobs=tuple(self.jobs.values()),
            embedder=self._replicas(deployments.get("mem-embedder")),
            next_embedder=self._replicas(deployments.get("mem-embedder-next")),
            sync=self._replicas(deployments.get("mem-sync")),
            children=dict(self.children),
        )

    def reconcile(self) -> Plan:
        """Reconcile once and execute the plan, three seconds after the last time."""
        self.world.now += timedelta(seconds=3)
        plan = acknowledge(self.index, self.world.now) or reconcile(
            self.index, self.observe(), self.world.images, self.world.now, self.world.intervals
        )
        for action in plan.actions:
            self._execute(action)
        if plan.status is not None and plan.status != self.manifest.get("status"):
            self.writes.append("status")
            self.manifest = {**self.manifest, "status": plan.status}
        return plan

    def finish(self, component: str, state: JobState = JobState.COMPLETE, failure: Problem | None = None) -> None:
        active = [job for job in self.jobs.values() if job.component == component and job.state is JobState.ACTIVE]
        job, name = active[0], active[0].name
        self.jobs[name] = replace(job, state=state, finished_at=self.world.now, failure=failure)

    def migrate(self) -> None:
        """End the migration Job as a successful one ends."""
        self.finish("migrate")
        self.change(
            schema_revision=HEAD_REVISION, schema_current=True, column_dimensions=384, active_model="all-MiniLM-L6-v2",
            rows=RowCounts(total=500, pending=480, sensitive=20),
        )  # fmt: skip

    def embed(self) -> None:
        """End the backfill Job as a successful one ends."""
        self.finish("backfill")
        self.change(rows=RowCounts(total=500, embedded=480, sensitive=20))

    def build(self) -> None:
        """End the index Job as a successful one ends."""
        self.finish("index")
        self.change(index_valid=True)

    def until_ready(self) -> None:
        """Reconcile and end Jobs until the object is ready."""
        self.reconcile()
        self.reconcile()
        self.change(extension_version="0.8.7")
        for advance in (self.migrate, self.embed, self.build):
            self.reconcile()
            advance()
        self.reconcile()

    def change(self, **facts: Any) -> None:
        assert isinstance(self.database, DatabaseFacts)
        self.database = replace(self.database, **facts)

    def condition(self, kind: str) -> Manifest:
        return next(c for c in self.manifest["status"]["conditions"] if c["type"] == kind)

    def running(self) -> list[str]:
        return sorted(job.component for job in self.jobs.values() if job.state is JobState.ACTIVE)

    def replicas(self, name: str) -> int | None:
        found = self.children.get(("Deployment", name))
        return found["spec"]["replicas"] if found else None

    def _execute(self, action: Apply | Delete | SetFinalizer) -> None:
        match action:
            case Apply(manifest):
                self.writes.append(manifest["kind"])
                self._apply(manifest)
            case Delete(kind, _, name):
                self.writes.append(f"delete {kind}")
                self.jobs.pop(name, None)
                self.cnpg.pop(name, None)
                self.children.pop((kind, name), None)
            case SetFinalizer(present):
                self.writes.append("finalizer")
                self.manifest["metadata"]["finalizers"] = [FINALIZER] if present else []
                self.gone = not present

    def _apply(self, manifest: Manifest) -> None:
        name = manifest["metadata"]["name"]
        if manifest["kind"] == "Job":
            self.jobs[name] = object_facts.job_facts(manifest, [])
        elif manifest["kind"] == "Database":
            self.cnpg[name] = {**manifest, "metadata": {**manifest["metadata"], "generation": 1}}
        else:
            self.children[manifest["kind"], name] = manifest

    @staticmethod
    def _replicas(deployment: Manifest | None) -> DeploymentFacts | None:
        if deployment is None:
            return None
        wanted = deployment["spec"].get("replicas", 1)
        return DeploymentFacts(replicas=wanted, ready=wanted, current=True)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def cluster(world: World) -> Cluster:
    """A cluster in which the object was just created."""
    manifest = world.manifest()
    manifest["metadata"]["finalizers"] = []
    manifest["status"] = {}
    return Cluster(world, manifest)


@pytest.fixture
def database_object() -> DatabaseObject:
    return DatabaseObject(
        namespace="dbaas", name="theirs", owner="owner", labels={"app": "theirs"}, extensions=(), generation=3,
        observed_generation=3, applied=True,
    )  # fmt: skip
