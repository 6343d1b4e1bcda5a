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

from devcluster.node.pki import Authority
from memory_operator.api.spec import FINALIZER, Manifest, MemoryIndex, parse
from memory_operator.clients import object_facts
from memory_operator.reconcile.authorization.permissions import Permitted
from memory_operator.reconcile.core import RequeueIntervals, acknowledge, conclude, reconcile
from memory_operator.reconcile.facts import (
    ApplicationDatabase,
    ClusterFacts,
    Credentials,
    DeletionFacts,
    DeploymentFacts,
    JobFacts,
    JobState,
    Observed,
    Problem,
)
from memory_operator.reconcile.indexing.graph import may_have_graph
from memory_operator.reconcile.plan import Action, Apply, Delete, Patch, Plan
from memory_operator.reconcile.swap_abort import may_be_unfinished
from memory_operator.resources.cnpg import DatabaseObject
from memory_operator.resources.common import ANNOTATION_STOPPED, Images
from memory_operator.resources.embedder import stopped_at
from memory_operator.resources.model_fetch import DIRECT, FetchRoute
from memory_recall.graph import GraphState
from memory_recall.hnsw.definition import IndexFacts
from memory_recall.postgres.identity_sql import DatabaseIdentity
from memory_recall.schema.claims_sql import TableClaim
from memory_recall.schema.models_sql import RecordedModel
from memory_recall.schema.revisions import HEAD_REVISION
from memory_recall.status import NO_INDEX, DatabaseFacts, RowCounts
from memory_recall.swap.state_sql import SwapRecord

START = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
SERVER = "7400000000000000001"
IDENTITY = DatabaseIdentity(SERVER, "app", "pg")
CLAIM = TableClaim(SERVER, "team", "mem", "u-1", "2026-01-01T11:00:00Z", "k-1", cluster_name="pg")
PASSWORD = "s3cret-pa55word"
MODEL = RecordedModel(1, "all-MiniLM-L6-v2", None, 384)
NEXT_MODEL = RecordedModel(2, "bge-small-en-v1.5", None, 384)
VALID_INDEX = IndexFacts("idx_memories_embedding_hnsw", exists=True, valid=True, progress=None)
ENABLED_GRAPH = GraphState(exists=True, enabled=True, queued=True, memories=20, links=60, pending=80)
FILLED_GRAPH = GraphState(exists=True, enabled=True, queued=True, filled=True, memories=90, links=300)
KEPT_GRAPH = GraphState(exists=True, kept=True, links=300)
EMPTY = DatabaseFacts(
    server_version="18.0", in_recovery=False, database_owner="owner", extension_version=None,
    extension_available="0.8.7", extension_schema=None, schema_revision=None, table_exists=False,
    embedding_dimensions=None, rows=RowCounts(), index=NO_INDEX, active_model=None, next_model=None,
)  # fmt: skip
FULL = replace(
    EMPTY,
    extension_version="0.8.7",
    schema_revision=HEAD_REVISION,
    embedding_dimensions=384,
    active_model=MODEL,
    rows=RowCounts(total=100, embedded=90, pending=0, sensitive=10),
    index=VALID_INDEX,
)
CERTIFICATES = Authority().certificate.decode()
CLUSTER = ClusterFacts(
    "dbaas", "pg", phase=object_facts.HEALTHY_PHASE, uid="c-1", system_id=SERVER,
    allowed_namespaces=frozenset({"team"}), application=ApplicationDatabase("app", "owner"), ca_secret="pg-ca",
)  # fmt: skip


async def anywhere(_namespace: str, host: str) -> tuple[str, ...]:
    """The address of a host that is an address itself, wherever it is."""
    return (host,)


def swap_record(stage: str, message: str = "", outcome: str | None = None) -> SwapRecord:
    gate = {"outcome": outcome, "message": message} if outcome else None
    return SwapRecord(1, stage, MODEL, NEXT_MODEL, gate, message, START, START, None)


def known(facts: Any) -> Any:
    """Facts of a test that is about something else: the server is the Cluster's, a migrated table is this object's."""
    if isinstance(facts, ClusterFacts) and not facts.system_id:
        return replace(
            facts, system_id=SERVER, allowed_namespaces=CLUSTER.allowed_namespaces, application=CLUSTER.application
        )
    if isinstance(facts, DatabaseFacts) and facts.identity is None:
        return replace(
            facts, identity=IDENTITY, claim=CLAIM if facts.schema_current or facts.schema_ahead else facts.claim
        )
    return facts


def deep_update(base: Manifest, changes: Manifest) -> Manifest:
    merged = copy.deepcopy(base)
    for key, value in changes.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = deep_update(merged[key], value) if both else value
    return merged


HOSTED_URL = "https://api.voyageai.com"
HOSTED: dict[str, Any] = {
    "embedding": {"model": "voyage-3.5", "dimensions": 1024, "queryEgress": "Allowed"},
    "embedder": {"external": {"url": HOSTED_URL, "api": "Voyage", "apiKey": {"secretName": "voyage"}}},
}
HOSTED_MODEL = RecordedModel(3, "voyage-3.5", None, 1024)


@dataclass
class World:
    """Makes the inputs of a reconcile, and plans."""

    images: Images = field(default_factory=lambda: Images(operator="op:1", embedder="emb:1"))
    now: datetime = START
    intervals: RequeueIntervals = field(default_factory=lambda: RequeueIntervals(settled=30.0))
    route: FetchRoute = DIRECT
    permitted: Permitted = field(
        default_factory=lambda: Permitted(("emb:2",), external_hosts=("e", ".ml.svc", "api.voyageai.com"))
    )

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
            "metadata": {
                "name": "mem", "namespace": "team", "uid": "u-1", "creationTimestamp": "2026-01-01T11:00:00Z",
                "generation": 1,
            },
            "spec": deep_update(base, spec),
            "status": {
                "conditions": [{"type": "Ready", "status": "Unknown"}],
                "database": {"systemIdentifier": SERVER},
            },
        }  # fmt: skip

    def index(self, **spec: Any) -> MemoryIndex:
        return parse(self.manifest(**spec))

    def observed(self, **facts: Any) -> Observed:
        base: dict[str, Any] = {
            "credentials": Credentials("app"), "cluster": CLUSTER, "database": FULL, "database_ca": CERTIFICATES,
            "kubernetes": "k-1",
        }  # fmt: skip
        return Observed(**{name: known(value) for name, value in {**base, **facts}.items()})

    def decide(self, index: MemoryIndex | None = None, **facts: Any) -> Plan:
        return reconcile(
            index or self.index(), self.observed(**facts), self.images, self.now, self.intervals,
            permitted=self.permitted, route=self.route,
        )  # fmt: skip

    def conclude(self, index: MemoryIndex, facts: DeletionFacts) -> Plan:
        return conclude(index, facts, self.images, self.now, self.intervals, permitted=self.permitted)

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


def condition(plan: Plan, kind: str) -> Manifest:
    """The condition of this type that a plan writes."""
    assert plan.status is not None
    return next(one for one in plan.status["conditions"] if one["type"] == kind)


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
        plan = self._plan()
        if plan.finalizer:
            self._set_finalizer(present=True)
        for action in plan.actions:
            self._execute(action)
        if plan.finalizer is False:
            self._set_finalizer(present=False)
        if plan.status is not None and plan.status != self.manifest.get("status"):
            self.writes.append("status")
            self.manifest = {**self.manifest, "status": plan.status}
        return plan

    def delete(self, *finalizers: str, **spec: Any) -> None:
        """Change the specification and request the deletion, as kubectl does."""
        metadata = self.manifest["metadata"]
        metadata["deletionTimestamp"] = self.world.now.isoformat()
        metadata["finalizers"] = [*metadata.get("finalizers", []), *finalizers]
        self.manifest["spec"] = deep_update(self.manifest["spec"], spec)
        self.writes.clear()

    def finish(self, component: str, state: JobState = JobState.COMPLETE, failure: Problem | None = None) -> None:
        active = [job for job in self.jobs.values() if job.component == component and job.state is JobState.ACTIVE]
        job, name = active[0], active[0].name
        self.jobs[name] = replace(job, state=state, finished_at=self.world.now, failure=failure)

    def migrate(self) -> None:
        """End the migration Job as a successful one ends."""
        self.finish("migrate")
        self.change(
            schema_revision=HEAD_REVISION, embedding_dimensions=384, active_model=MODEL,
            rows=RowCounts(total=500, pending=480, sensitive=20),
        )  # fmt: skip

    def embed(self) -> None:
        """End the backfill Job as a successful one ends."""
        self.finish("backfill")
        self.change(rows=RowCounts(total=500, embedded=480, sensitive=20))

    def build(self) -> None:
        """End the index Job as a successful one ends."""
        self.finish("index")
        self.change(index=VALID_INDEX)

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

    def _plan(self) -> Plan:
        if self.index.deleted_at is None:
            acknowledged = acknowledge(self.index, self.world.now)
            return acknowledged or self.world.decide(self.index, **vars(self.observe()))
        observed = self.observe()
        settles = may_have_graph(self.index) or may_be_unfinished(self.index)
        undo = self.index.spec.deletion_policy == "Delete" or settles
        facts = DeletionFacts(observed.database_objects, observed=observed if undo else None)
        return self.world.conclude(self.index, facts)

    def _set_finalizer(self, *, present: bool) -> None:
        self.writes.append("finalizer")
        others = [name for name in self.manifest["metadata"].get("finalizers", []) if name != FINALIZER]
        self.manifest["metadata"]["finalizers"] = [*others, *([FINALIZER] if present else [])]
        self.gone = "deletionTimestamp" in self.manifest["metadata"] and not self.manifest["metadata"]["finalizers"]

    def _execute(self, action: Action) -> None:
        match action:
            case Patch(kind, _, name, uid, changes):
                self.writes.append(f"patch {kind}")
                assert uid == self._uid(kind, name), "the API server refuses to change another object"
                self._patch(kind, name, changes)
            case Apply(manifest):
                self.writes.append(manifest["kind"])
                self._apply(manifest)
            case Delete(kind, _, name, uid):
                self.writes.append(f"delete {kind}")
                assert uid == self._uid(kind, name), "the API server refuses to delete another object"
                self.jobs.pop(name, None)
                self.cnpg.pop(name, None)
                self.children.pop((kind, name), None)

    def _patch(self, kind: str, name: str, changes: Manifest) -> None:
        if kind == "Job":
            suspend = changes["spec"]["suspend"]
            stopped = changes["metadata"]["annotations"][ANNOTATION_STOPPED] is not None
            self.jobs[name] = replace(self.jobs[name], suspended=suspend, stopped=suspend and stopped)
        else:
            self.children[kind, name] = deep_update(self.children[kind, name], changes)

    def _uid(self, kind: str, name: str) -> str:
        if kind == "Job":
            return self.jobs[name].uid
        live = self.cnpg[name] if kind == "Database" else self.children[kind, name]
        uid: str = live["metadata"]["uid"]
        return uid

    def _apply(self, manifest: Manifest) -> None:
        name = manifest["metadata"]["name"]
        manifest = {**manifest, "metadata": {**manifest["metadata"], "uid": f"{manifest['kind']} {name}"}}
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
        return DeploymentFacts(replicas=wanted, ready=wanted, current=True, stopped_at=stopped_at(deployment))


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def cluster(world: World) -> Cluster:
    """A cluster in which the object was just created."""
    manifest = world.manifest()
    manifest["status"] = {}
    return Cluster(world, manifest)


@pytest.fixture
def database_object() -> DatabaseObject:
    return DatabaseObject(
        namespace="dbaas", name="theirs", owner="owner", labels={"app": "theirs"}, extensions=(), generation=3,
        observed_generation=3, applied=True,
    )  # fmt: skip
