"""A named situation of a MemoryIndex, made from a settled one, and the parts that situations are made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from memory_operator.api.conditions import Verdict
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import Manifest, parse
from memory_operator.clients import object_facts
from memory_operator.reconcile.core import acknowledge
from memory_operator.reconcile.facts import (
    ClusterFacts,
    EmbedderLoad,
    JobFacts,
    JobState,
    PodFacts,
    Problem,
    ReportedModel,
)
from memory_operator.reconcile.status import refuse
from memory_operator.resources.cnpg import DatabaseObject
from memory_operator.resources.common import LABEL_CONFIG, LABEL_MANAGED_BY, MANAGER
from memory_operator.resources.model_fetch import fetch_job
from memory_operator.resources.workers import config_fingerprint
from memory_recall.status import DatabaseFacts
from tests.support.gitops.kstatus import Kstatus
from tests.unit.memory_operator.conftest import FULL, START, Cluster, World

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Situation:
    """What differs from a settled object, and what its status must be.

    `spec` and `base` are the specification and the database with which it settled, `edit` what has been edited since,
    and `lasts` for how many seconds the situation has been so. `recall` and `embeds` are no output of the operator but
    what is true outside: whether a recall by meaning works then, and whether a new row gets its vector. `cause` is a
    condition with its status and reason. Where the work has not `begun`, nothing exists yet that the operator makes.
    """

    name: str
    ready: str
    reason: str
    kstatus: Kstatus
    facts: Facts = field(default_factory=dict)
    spec: Facts = field(default_factory=dict)
    edit: Facts = field(default_factory=dict)
    lasts: float = 0.0
    recall: bool = True
    embeds: bool = True
    cause: tuple[str, str, str] | None = None
    base: DatabaseFacts = FULL
    begun: bool = True

    def resource(self) -> Manifest:
        """The object as the API server holds it, with the status that the operator has written."""
        world = World()
        cluster = Cluster(world, world.manifest(**self.spec))
        if self.begun:
            cluster.database = self.base
            for _ in range(3):
                cluster.reconcile()
        metadata = {**cluster.manifest["metadata"], "generation": 2 if self.edit else 1}
        edited = world.manifest(**{**self.spec, **self.edit}) | {"status": cluster.manifest["status"]}
        index = parse({**edited, "metadata": metadata})
        observed = replace(cluster.observe(), **self.facts)
        plan = world.decide(index, **vars(observed))
        for seconds in (self.lasts / 2, self.lasts / 2):
            plan = world.decide_again(plan, seconds, index, **vars(observed))
        return {**edited, "metadata": metadata, "status": plan.status}


def settled() -> Manifest:
    """An object about which nothing is left to do."""
    return Situation("settled", "True", "Ready", Kstatus.CURRENT).resource()


def pod(component: str, reason: Reason) -> PodFacts:
    """A pod that cannot run."""
    found = Problem(reason, f"Pod team/mem-{component}-x cannot run.")
    return PodFacts(f"mem-{component}-x", component, problem=found, created_at=START)


def pods(component: str, reason: Reason) -> Facts:
    return {"pods": (pod(component, reason),)}


def db(**changes: Any) -> Facts:
    """A database that differs from the settled one."""
    return {"database": replace(FULL, **changes)}


def job(component: str, state: JobState = JobState.ACTIVE, failure: Reason | None = None, **spec: Any) -> Facts:
    """A Job of the present configuration, with this specification."""
    world = World()
    config = config_fingerprint(world.index(**spec), world.images, component)
    problem = Problem(failure, "it said why.") if failure else None
    ended = None if state is JobState.ACTIVE else START + timedelta(days=1)
    return {"jobs": (JobFacts(f"mem-{component}-1", component, config, 0, state, ended, problem),)}


def without_pod(component: str) -> Facts:
    """A Job that has had no pod since the beginning."""
    (found,) = job(component)["jobs"]
    return {"jobs": (replace(found, without_pod_since=START),)}


def unprepared(component: str) -> Facts:
    """A pod that has a node, and waits for its volumes."""
    return {"pods": (PodFacts(f"mem-{component}-x", component, created_at=START, unprepared_since=START),)}


def fetch(state: JobState = JobState.ACTIVE, failure: Reason | None = None, **spec: Any) -> Facts:
    """A Job that fetches the model file of this specification."""
    world = World()
    index = world.index(**spec)
    assert index.fetched_source
    meta = fetch_job(index, world.images, 0, source=index.fetched_source)["metadata"]
    problem = Problem(failure, "it said why.") if failure else None
    ended = None if state is JobState.ACTIVE else START + timedelta(days=1)
    return {"jobs": (JobFacts(meta["name"], "fetch", meta["labels"][LABEL_CONFIG], 0, state, ended, problem),)}


def problem(where: str, reason: Reason) -> Facts:
    """A part of the observation that failed."""
    facts: dict[str, Any] = {where: Problem(reason, "It is wrong.")}
    return facts | ({} if where == "database" else {"database": None})


def cluster(**changes: Any) -> ClusterFacts:
    return replace(ClusterFacts("dbaas", "pg", phase=object_facts.HEALTHY_PHASE), **changes)


def served(**changes: str) -> Facts:
    """An embedder pod that says what it serves."""
    return {"loads": (EmbedderLoad("mem-embedder-x", model=ReportedModel("Pod mem-embedder-x", **changes)),)}


def database_object(**changes: Any) -> DatabaseObject:
    ours = DatabaseObject(
        "dbaas", "team-mem", "owner", {LABEL_MANAGED_BY: MANAGER}, ({"name": "vector", "ensure": "present"},), 1
    )
    return replace(ours, **changes)


def no(condition: str, reason: str) -> dict[str, Any]:
    """The expected cause."""
    return {"cause": (condition, "False", reason)}


def yes(condition: str, reason: str) -> dict[str, Any]:
    """A condition that is expected to hold."""
    return {"cause": (condition, "True", reason)}


def unplanned() -> dict[str, tuple[Manifest, Kstatus]]:
    """Objects whose status no plan has decided, by name, with what kstatus must say."""
    world, done = World(), settled()
    new = {**world.manifest(), "status": {"observedGeneration": -1}}
    first = acknowledge(parse(new), world.now)
    denied = Verdict.unknown(Reason.OBSERVATION_FAILED, "reading Secret team/dsn: forbidden.")
    refused = Verdict.no(Reason.WRITE_REFUSED, "exceeded quota.")
    return {
        "not seen yet": (new, Kstatus.IN_PROGRESS),
        "seen": ({**new, "status": first.status if first else None}, Kstatus.IN_PROGRESS),
        "edited and not seen yet": ({**done, "metadata": {**done["metadata"], "generation": 9}}, Kstatus.IN_PROGRESS),
        "not observable": ({**done, "status": refuse(done, denied, world.now)}, Kstatus.IN_PROGRESS),
        "not writable": ({**done, "status": refuse(done, refused, world.now)}, Kstatus.FAILED),
        "being deleted": (
            {**done, "metadata": {**done["metadata"], "deletionTimestamp": "2026-01-01T12:00:00Z"}},
            Kstatus.TERMINATING,
        ),
    }
