"""The controller over plain data: what is written, when nothing is written, and the effects of failures."""

import base64
import copy
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from memory_operator.api.reasons import Reason
from memory_operator.api.spec import FINALIZER
from memory_operator.clients.embedder import EmbedderProbe
from memory_operator.clients.http import Answer
from memory_operator.clients.kube import EVERY_NAMESPACE, KindMissingError, KubeError, NameTakenError
from memory_operator.controller.controller import Controller
from memory_operator.controller.metrics import Metrics
from memory_operator.controller.observe import Observer
from memory_operator.controller.queue import WorkQueue
from memory_operator.controller.reporter import log_fields
from memory_operator.reconcile.core import LONGEST_REQUEUE_SECONDS, MAX_QUERY_DUTY_CYCLE
from memory_operator.reconcile.facts import Inspection, Problem
from memory_operator.resources.model_fetch import DIRECT
from memory_recall.postgres.connection import DsnText
from memory_recall.status import NO_INDEX, DatabaseFacts, RowCounts
from tests.unit.memory_operator.conftest import (
    CERTIFICATES,
    EMPTY,
    FULL,
    SERVER,
    World,
    anywhere,
    deep_update,
    known,
)

KEY = ("team", "mem")
CLUSTER_OBJECT = {
    "metadata": {"uid": "c-1", "annotations": {"memory-index.dev/allowed-namespaces": "team"}},
    "spec": {"bootstrap": {"initdb": {"database": "app", "owner": "owner"}}},
    "status": {
        "phase": "Cluster in healthy state", "currentPrimary": "pg-1", "targetPrimary": "pg-1", "systemID": SERVER,
    },
}  # fmt: skip
PASSWORD = "s3cret-pa55word"
DSN = f"postgresql://owner:{PASSWORD}@pg-rw.dbaas:5432/app"


class Api:
    """Objects by kind, namespace and name; server-side apply replaces them, which is all that these tests need."""

    def __init__(self, index: dict[str, Any]) -> None:
        self.objects: dict[tuple[str, str, str], dict[str, Any]] = {("MemoryIndex", *KEY): index}
        self.writes: list[str] = []
        self.created: list[dict[str, Any]] = []
        self.refusal: KubeError | None = None
        self.refused_kinds: set[str] = set()
        self.missing_kinds: set[str] = set()
        self.terminating = False
        self.dry_runs: list[str] = []
        self.admit: Callable[[dict[str, Any]], None] = lambda _: None  # changes what is stored, as admission does

    @property
    def index(self) -> dict[str, Any]:
        return self.objects["MemoryIndex", *KEY]

    def condition(self, kind: str) -> dict[str, Any]:
        return next(c for c in self.index["status"]["conditions"] if c["type"] == kind)

    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        return self.objects.get((kind, namespace, name))

    async def list(self, kind: str, namespace: str, labels: dict[str, str] | None = None) -> list[dict[str, Any]]:
        if kind in self.missing_kinds:
            raise KindMissingError(f"listing {kind}", 404, "not known")
        mine = [item for (k, n, _), item in self.objects.items() if k == kind and namespace in {n, EVERY_NAMESPACE}]
        wanted = (labels or {}).items()
        return [item for item in mine if wanted <= (item["metadata"].get("labels") or {}).items()]

    async def pages(
        self, kind: str, namespace: str, labels: dict[str, str] | None = None
    ) -> AsyncIterator[tuple[Collection[dict[str, Any]], int]]:
        for item in await self.list(kind, namespace, labels):
            yield [item], 0

    async def apply(self, manifest: dict[str, Any]) -> dict[str, Any]:
        self._refuse(manifest["kind"])
        kind, meta = manifest["kind"], manifest["metadata"]
        self.writes.append(kind)
        stored = await self.dry_run(manifest)
        self.dry_runs.pop()
        self.objects[kind, meta["namespace"], meta["name"]] = stored
        return stored

    async def dry_run(self, manifest: dict[str, Any]) -> dict[str, Any]:
        kind, meta = manifest["kind"], manifest["metadata"]
        self.dry_runs.append(kind)
        stored = copy.deepcopy({**manifest, "metadata": {**meta, "uid": f"{kind} {meta['name']}"}})
        self.admit(stored)
        return stored

    async def create(self, manifest: dict[str, Any]) -> None:
        self._refuse(manifest["kind"])
        meta = manifest["metadata"]
        self.created.append(manifest)
        self.objects.setdefault((manifest["kind"], meta["namespace"], meta["name"]), manifest)

    async def replace_status(self, manifest: dict[str, Any], status: dict[str, Any]) -> None:
        self.writes.append("status")
        key = ("MemoryIndex", manifest["metadata"]["namespace"], manifest["metadata"]["name"])
        self.objects[key] = {**self.objects[key], "status": status}

    async def set_finalizer(self, manifest: dict[str, Any], *, present: bool) -> None:
        self._refuse("MemoryIndex")
        self.writes.append("finalizer")
        manifest["metadata"]["finalizers"] = [FINALIZER] if present else []

    async def namespace_uid(self, _namespace: str) -> str:
        return "k-1"

    async def patch(self, kind: str, namespace: str, name: str, uid: str, changes: dict[str, Any]) -> None:
        self.writes.append(f"patch {kind}")
        live = self.objects[kind, namespace, name]
        assert live["metadata"]["uid"] == uid
        self.objects[kind, namespace, name] = deep_update(live, changes)

    async def is_terminating(self, _namespace: str) -> bool:
        return self.terminating

    def _refuse(self, kind: str) -> None:
        if self.refusal and (not self.refused_kinds or kind in self.refused_kinds):
            raise self.refusal

    async def delete(self, kind: str, namespace: str, name: str, uid: str) -> None:
        self._refuse(kind)
        live = self.objects.get((kind, namespace, name))
        if live is not None and live["metadata"]["uid"] != uid:
            raise NameTakenError("deleting", 409, f"{name} does not belong to this MemoryIndex.", refused=True)
        self.writes.append(f"delete {kind}")
        self.objects.pop((kind, namespace, name), None)


class Bench:
    """A controller with a fake API, database and clock."""

    def __init__(self, world: World) -> None:
        self.api = Api(world.manifest())
        self.database: DatabaseFacts | Problem = EMPTY
        self.dsns: list[str] = []
        self.sources: list[DsnText] = []
        self.urls: list[str] = []
        self.metrics = Metrics()
        self.queue = WorkQueue(lambda: 0.0)
        self.query_seconds = 0.0
        self.put_dsn(DSN)
        self.put("Cluster", "dbaas", "pg", CLUSTER_OBJECT)
        authority = {"ca.crt": CERTIFICATES, "ca.key": PASSWORD}
        data = {key: base64.b64encode(value.encode()).decode() for key, value in authority.items()}
        self.put("Secret", "dbaas", "pg-ca", {"data": data})
        self.probe = EmbedderProbe(self.answer, world.permitted, anywhere)
        self.observer = Observer(self.api, self.inspect, self.probe)  # type: ignore[arg-type]
        self.controller = Controller(
            kube=self.api,  # type: ignore[arg-type]
            observer=self.observer,
            queue=self.queue,
            images=world.images,
            route=DIRECT,
            intervals=world.intervals,
            permitted=world.permitted,
            metrics=self.metrics,
            clock=lambda: world.now,
        )

    def put(self, kind: str, namespace: str, name: str, item: dict[str, Any]) -> None:
        meta = {"namespace": namespace, "name": name, **item.get("metadata", {})}
        self.api.objects[kind, namespace, name] = {**item, "metadata": meta}

    def put_dsn(self, dsn: str, **labels: str) -> None:
        meta = {"namespace": "team", "name": "dsn", "labels": labels or {"memory-index.dev/allow": "dsn"}}
        data = {"uri": base64.b64encode(dsn.encode()).decode()}
        self.api.objects["Secret", "team", "dsn"] = {"metadata": meta, "data": data}

    async def inspect(self, source: DsnText, *_: str) -> Inspection:
        self.dsns.append(source.dsn)
        self.sources.append(source)
        return Inspection(known(self.database), self.query_seconds)

    async def answer(self, url: str, *_: Any) -> Answer:
        self.urls.append(url)
        return Answer(503, b"")

    async def reconcile(self, times: int = 1) -> None:
        for _ in range(times):
            await self.controller.reconcile_object(KEY)

    def sample(self, series: str, /, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(series, labels)


@pytest.fixture
async def bench(world: World) -> Bench:
    return Bench(world)


async def test_a_reconcile_writes_objects_first_and_the_status_last(bench: Bench) -> None:
    await bench.reconcile()
    assert bench.api.writes == [
        "finalizer", "Database", "ConfigMap", "NetworkPolicy", "NetworkPolicy", "Service", "Deployment", "status",
    ]  # fmt: skip
    assert bench.api.condition("ExtensionReady")["reason"] == "Installing"


async def test_a_new_object_is_acknowledged_before_anything_is_observed(bench: Bench) -> None:
    del bench.api.index["status"]
    await bench.reconcile()
    assert bench.api.condition("Ready")["status"] == "Unknown"
    assert bench.dsns == [], "a database that does not answer would delay the first status"
    assert bench.queue._due[KEY] == 0.0, "it is requeued at once"


async def test_reconciling_unchanged_facts_again_writes_nothing(bench: Bench) -> None:
    await bench.reconcile(2)
    bench.api.writes.clear()
    await bench.reconcile(5)
    assert bench.api.writes == []


@pytest.mark.finding("D9")
@pytest.mark.parametrize(
    ("seconds", "due"), [(0.01, 3.0), (1.0, 1.0 / MAX_QUERY_DUTY_CYCLE), (20.0, LONGEST_REQUEUE_SECONDS)]
)
async def test_the_time_that_a_database_worked_delays_the_next_reconcile_up_to_a_limit(
    bench: Bench, seconds: float, due: float
) -> None:
    bench.query_seconds = seconds
    await bench.reconcile()
    assert bench.queue._due[KEY] == pytest.approx(due)


async def test_the_secret_is_read_anew_at_every_reconcile(bench: Bench) -> None:
    await bench.reconcile()
    rotated = DSN.replace(PASSWORD, "rotated")
    bench.put_dsn(rotated)
    await bench.reconcile()
    assert bench.dsns == [DSN, rotated]


async def test_without_a_secret_the_database_is_not_connected_to(bench: Bench) -> None:
    del bench.api.objects["Secret", "team", "dsn"]
    await bench.reconcile()
    assert bench.dsns == []
    assert bench.api.condition("DatabaseReachable")["reason"] == "SecretMissing"
    assert bench.api.writes == ["status"]


async def test_a_missing_cloudnativepg_has_another_reason_than_a_missing_cluster(bench: Bench) -> None:
    del bench.api.objects["Cluster", "dbaas", "pg"]
    await bench.reconcile()
    assert bench.api.condition("DatabaseReachable")["reason"] == "ClusterMissing"
    bench.api.missing_kinds.add("Database")
    await bench.reconcile()
    assert bench.api.condition("DatabaseReachable")["reason"] == "CloudNativePGMissing"


async def test_a_refused_write_is_reported_once_and_retried(bench: Bench) -> None:
    bench.api.refusal = KubeError("applying Deployment team/mem-embedder", 403, "exceeded quota", refused=True)
    await bench.reconcile()
    ready = bench.api.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "WriteRefused")
    assert "exceeded quota" in ready["message"]
    assert bench.api.condition("Stalled")["status"] == "True"
    bench.api.writes.clear()
    await bench.reconcile(3)
    assert bench.api.writes == [], "saying the same again is no news"
    bench.api.refusal = None
    await bench.reconcile()
    assert bench.api.condition("Stalled")["status"] == "False"


async def test_a_failed_write_is_counted_and_retried_later(bench: Bench) -> None:
    bench.api.refusal = KubeError("applying Deployment team/mem-embedder", 500, "etcd is slow")
    with capture_logs() as logs:
        await bench.reconcile()
    assert bench.sample("memory_operator_reconcile_errors_total", error="KubeError") == 1
    assert logs[-1]["event"] == "reconcile failed"
    bench.api.refusal = None
    await bench.reconcile()
    assert "Deployment" in bench.api.writes


async def test_an_invalid_object_is_reported_and_left_alone(bench: Bench) -> None:
    bench.api.index["spec"]["embedder"]["minReplicas"] = "many"
    await bench.reconcile()
    assert bench.api.condition("Ready")["reason"] == "InvalidSpec"
    assert "spec.embedder.minReplicas" in bench.api.condition("Stalled")["message"]
    assert bench.api.writes == ["status"]


async def test_a_deleted_object_is_forgotten_with_its_series(bench: Bench) -> None:
    await bench.reconcile()
    series = {"namespace": "team", "name": "mem", "type": "Ready"}
    assert bench.sample("memory_operator_object_condition", **series) == 0
    del bench.api.objects["MemoryIndex", *KEY]
    await bench.reconcile()
    assert bench.sample("memory_operator_object_condition", **series) is None


async def test_the_rate_of_a_backfill_and_its_end_are_reported(bench: Bench, world: World) -> None:
    full = replace(FULL, rows=RowCounts(total=100, embedded=10, pending=90), index=NO_INDEX)
    bench.database = full
    await bench.reconcile()
    deployment = bench.api.objects["Deployment", "team", "mem-embedder"]
    deployment["status"] = {"readyReplicas": 1}
    await bench.reconcile()
    assert "Job" in bench.api.writes
    await bench.reconcile()
    bench.database = replace(full, rows=RowCounts(total=100, embedded=60, pending=40))
    await bench.reconcile()
    backfill = bench.api.index["status"]["backfill"]
    assert backfill["job"].startswith("mem-backfill-")
    assert backfill["rowsPerSecond"] > 0
    bench.database = replace(full, rows=RowCounts(total=100, embedded=100))
    for (kind, _, _), item in bench.api.objects.items():
        if kind == "Job":
            done = {"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T12:00:00Z"}
            item["status"] = {"conditions": [done]}
    await bench.reconcile()
    assert "backfill" not in bench.api.index["status"]


async def test_neither_written_objects_nor_logs_contain_the_password(bench: Bench) -> None:
    with capture_logs() as logs:
        await bench.reconcile(2)
        bench.database = Problem(Reason.AUTHENTICATION_FAILED, "refused.")
        await bench.reconcile()
    written = [item for key, item in bench.api.objects.items() if key[0] != "Secret"]
    assert PASSWORD not in repr((written, logs))
    assert base64.b64encode(PASSWORD.encode()).decode() not in repr((written, logs))


def test_the_text_of_another_librarys_error_is_not_logged() -> None:
    with pytest.raises(ValueError, match="base 10") as caught:
        int(DSN)
    said = log_fields(caught.value)
    assert PASSWORD not in repr(said)
    assert "test_operator_controller.py" in said["at"]
