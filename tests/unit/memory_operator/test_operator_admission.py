"""Admission changes what the operator sends: the object is Ready, nothing is written again, and the field is named."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from memory_operator.api.spec import Manifest
from memory_operator.clients.kube import KubeError
from memory_operator.controller.history import ObjectHistory
from memory_operator.controller.writes import Writes
from memory_operator.reconcile.facts import Observed
from memory_operator.reconcile.rollout import with_live_template
from memory_operator.resources.drift import drifted
from memory_recall.status import NO_INDEX, RowCounts
from tests.unit.memory_operator.conftest import CLAIM, FULL, IDENTITY, START, World
from tests.unit.memory_operator.test_operator_controller import KEY, Bench, bench

__all__ = ["bench"]  # the fixture
READY = replace(FULL, identity=IDENTITY, claim=CLAIM)
EMBEDDER, SYNC = ("Deployment", "team", "mem-embedder"), ("Deployment", "team", "mem-sync")
Admission = Callable[[Manifest], None]


def pod(stored: Manifest) -> Manifest:
    found: Manifest = stored["spec"]["template"]["spec"]
    return found


def own(stored: Manifest) -> Manifest:
    found: Manifest = next(one for one in pod(stored)["containers"] if one["name"] in {"embedder", "memory"})
    return found


def rewrite_registry(stored: Manifest) -> None:
    own(stored)["image"] = f"mirror.example/{own(stored)['image']}"


def inject_first(stored: Manifest) -> None:
    pod(stored)["containers"].insert(0, {"name": "proxy", "image": "proxy:1"})


def add_secrets(stored: Manifest) -> None:
    """Give a pod the Secrets of a company, as policies do: one as a volume, one beside its token."""
    pod(stored).setdefault("volumes", []).extend(
        [
            {"name": "company", "secret": {"secretName": "company-registry", "items": [{"key": "a", "path": "a"}]}},
            {
                "name": "company-ca",
                "projected": {
                    "sources": [
                        {
                            "secret": {
                                "name": "company-ca",
                                "items": [
                                    {"key": "ca.crt", "path": "ca.crt"},
                                ],
                            }
                        }
                    ]
                },
            },
        ]
    )


def rename_tolerations(stored: Manifest) -> None:
    pod(stored)["tolerations"] = [{"key": "pool", "operator": "Exists"}]


# What admission does to a Deployment, and the field that the operator names, or an empty text if it is none of its own.
MUTATIONS: dict[str, tuple[Admission, str]] = {
    "processors": (
        lambda o: own(o)["resources"]["requests"].update(cpu="375m"), "resources.requests.cpu",
    ),
    "memory removed": (lambda o: own(o)["resources"].pop("limits"), "resources.limits"),
    "registry": (rewrite_registry, "image"),
    "pull policy": (lambda o: own(o).update(imagePullPolicy="Always"), "imagePullPolicy"),
    "annotation added": (lambda o: o["metadata"]["annotations"].update(team="blue"), ""),
    "annotation changed": (
        lambda o: o["spec"]["template"]["metadata"]["annotations"].update({"prometheus.io/scrape": "false"}),
        "spec.template.metadata.annotations.prometheus.io/scrape",
    ),
    "tolerations": (rename_tolerations, ""),
    "sidecar before ours": (inject_first, ""),
    "secrets of others": (add_secrets, ""),
    "security context": (lambda o: pod(o)["securityContext"].pop("runAsUser"), "securityContext.runAsUser"),
    "command": (lambda o: own(o)["command"].append("--verbose"), "command"),
    "label removed": (lambda o: o["spec"]["template"]["metadata"]["labels"].pop("app.kubernetes.io/name"), "labels"),
    "replicas": (lambda o: o["spec"].update(replicas=2), "spec.replicas"),
    "fingerprint": (
        lambda o: o["metadata"]["annotations"].pop("memory-index.dev/fingerprint"), "memory-index.dev/fingerprint",
    ),
}  # fmt: skip


def serving(change: Admission) -> Admission:
    """Admission on Deployments whose pods become ready at once."""

    def admit(stored: Manifest) -> None:
        if stored["kind"] != "Deployment":
            return
        change(stored)
        replicas = stored["spec"].get("replicas", 1)
        stored["metadata"]["generation"] = 1
        stored["status"] = {
            "observedGeneration": 1, "replicas": replicas, "readyReplicas": replicas, "updatedReplicas": replicas,
        }  # fmt: skip

    return admit


def restart(bench: Bench) -> None:
    """Forget what only the process knows."""
    bench.controller._histories.clear()


@pytest.fixture
async def settled(bench: Bench, request: pytest.FixtureRequest) -> Bench:
    """A settled object under the admission that the test's parameter names."""
    bench.database = READY
    bench.api.admit = serving(MUTATIONS[request.param][0])
    await bench.reconcile(4)
    bench.api.writes.clear()
    bench.api.dry_runs.clear()
    return bench


EACH = pytest.mark.parametrize("settled", MUTATIONS, indirect=True)


@EACH
@pytest.mark.finding("operator F1")
async def test_an_object_whose_deployments_admission_changes_is_ready_and_written_no_more(settled: Bench) -> None:
    await settled.reconcile(5)
    assert settled.api.condition("Ready")["status"] == "True"
    assert settled.api.writes == []
    assert settled.api.dry_runs == []


@EACH
@pytest.mark.finding("operator F1")
async def test_after_a_restart_the_api_server_is_asked_once_and_nothing_is_written(settled: Bench) -> None:
    restart(settled)
    await settled.reconcile(5)
    assert settled.api.condition("Ready")["status"] == "True"
    assert settled.api.writes == []
    assert len(settled.api.dry_runs) <= 2, "one of each Deployment"


@pytest.mark.parametrize("settled", ["processors", "registry"], indirect=True)
@pytest.mark.finding("operator F1")
async def test_a_suspended_object_stays_ready_after_a_restart(settled: Bench) -> None:
    settled.api.index["spec"]["suspend"] = True
    restart(settled)
    await settled.reconcile(3)
    assert settled.api.condition("Ready")["status"] == "True"
    assert settled.api.condition("EmbedderReady")["reason"] == "ChangedByAdmission"


@pytest.mark.parametrize(
    ("settled", "field"), [(name, one[1]) for name, one in MUTATIONS.items()], indirect=["settled"]
)
@pytest.mark.finding("operator F1")
async def test_the_condition_names_the_field_that_admission_changed(settled: Bench, field: str) -> None:
    condition = settled.api.condition("EmbedderReady")
    assert (condition["status"], condition["reason"]) == ("True", "ChangedByAdmission" if field else "Available")
    assert ("Deployment mem-embedder" in condition["message"].partition("Admission")[2]) is bool(field)
    assert field in condition["message"]


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("settled", ["processors"], indirect=True)
@pytest.mark.finding("operator F1")
async def test_a_persons_edit_is_undone_under_the_same_admission(settled: Bench, again: bool) -> None:
    if again:
        restart(settled)
    own(settled.api.objects[EMBEDDER])["image"] = "evil:1"
    await settled.reconcile(3)
    assert settled.api.writes.count("Deployment") == 1
    assert own(settled.api.objects[EMBEDDER])["image"] == "emb:1"


@pytest.mark.parametrize("settled", ["registry"], indirect=True)
@pytest.mark.finding("operator F1")
async def test_a_rewritten_registry_is_no_older_release(settled: Bench) -> None:
    settled.api.index["spec"]["embedder"]["minReplicas"] = 2
    settled.api.index["spec"]["embedder"]["maxReplicas"] = 2
    index, observed, _ = World().settled()
    settled.controller._turn.admits(index.model_copy(update={"namespace": "other"}), observed, START)
    await settled.reconcile(3)
    assert settled.api.objects[EMBEDDER]["spec"]["replicas"] == 2
    assert "new default image" not in settled.api.condition("EmbedderReady")["message"]


@pytest.mark.parametrize("settled", ["registry"], indirect=True)
@pytest.mark.finding("operator F1")
async def test_what_admission_made_of_a_write_is_known_after_one_that_sends_it_as_it_is(settled: Bench) -> None:
    """While the database is away or a swap runs, only the number of pods changes, with the template that is live."""
    _, observed, _ = World().settled()
    desired = observed.children["Deployment", "mem-embedder"]
    live = settled.api.objects[EMBEDDER]
    writes = Writes()
    writes.learn(desired, live)
    assert not drifted(desired, live, writes.known(with_live(observed, live)).admissions["Deployment", "mem-embedder"])
    scaled = {**live, "spec": {**live["spec"], "replicas": 2}}
    writes.learn(with_live_template({**desired, "spec": {**desired["spec"], "replicas": 2}}, live), scaled)
    assert not drifted(desired, live, writes.known(with_live(observed, live)).admissions["Deployment", "mem-embedder"])


def with_live(observed: Observed, live: Manifest) -> Observed:
    """Return the observation with this embedder's Deployment."""
    return replace(observed, children={**observed.children, ("Deployment", "mem-embedder"): live})


@pytest.mark.parametrize("settled", ["processors"], indirect=True)
@pytest.mark.finding("operator F1")
async def test_a_webhook_without_dry_runs_costs_one_write_after_a_restart(settled: Bench) -> None:
    async def refuse(_manifest: Manifest) -> Manifest:
        raise KubeError("asking", 400, "admission webhook does not support dry run", refused=True)

    restart(settled)
    real, settled.api.dry_run = settled.api.dry_run, refuse  # type: ignore[method-assign]
    apply = settled.api.apply

    async def applied(manifest: Manifest) -> Manifest:
        settled.api.dry_run = real  # type: ignore[method-assign]
        try:
            return await apply(manifest)
        finally:
            settled.api.dry_run = refuse  # type: ignore[method-assign]

    settled.api.apply = applied  # type: ignore[method-assign]
    await settled.reconcile(6)
    assert settled.api.writes.count("Deployment") == 2, "one of each"
    assert settled.api.condition("Ready")["status"] == "True"


@pytest.mark.finding("operator F1")
async def test_a_backfill_begins_while_something_writes_the_deployment_back(bench: Bench, world: World) -> None:
    """What counts is that a pod serves, not that the Deployment is as it was sent."""
    bench.database = replace(READY, rows=RowCounts(total=500, pending=500), index=NO_INDEX)
    bench.api.admit = serving(lambda _: None)
    await bench.reconcile(2)
    own(bench.api.objects[EMBEDDER])["resources"]["requests"]["cpu"] = "1m"
    for job in [key for key in bench.api.objects if key[0] == "Job"]:
        del bench.api.objects[job]
    await bench.reconcile()
    jobs = [item for (kind, _, _), item in bench.api.objects.items() if kind == "Job"]
    assert [job["metadata"]["labels"]["app.kubernetes.io/component"] for job in jobs] == ["backfill"]


async def undo(bench: Bench, world: World, seconds: int) -> int:
    """Let a controller change the Deployment back after each reconcile, every 3 s; return how often it was written."""
    bench.api.writes.clear()
    for _ in range(seconds // 3):
        own(bench.api.objects[EMBEDDER])["resources"]["requests"]["cpu"] = "1m"
        world.now += timedelta(seconds=3)
        await bench.reconcile()
    return bench.api.writes.count("Deployment")


@pytest.mark.finding("operator F1")
async def test_what_is_undone_each_time_is_written_again_with_a_growing_delay(bench: Bench, world: World) -> None:
    bench.database = READY
    bench.api.admit = serving(lambda _: None)
    await bench.reconcile(2)
    first = await undo(bench, world, 60)
    condition = bench.api.condition("EmbedderReady")
    assert (condition["status"], condition["reason"]) == ("False", "ChangedByOthers")
    assert "spec.template.spec.containers[embedder].resources.requests.cpu" in condition["message"]
    assert bench.api.condition("Stalled")["status"] == "True"
    assert first <= 6
    assert await undo(bench, world, 1200) <= 8
    assert (bench.sample("memory_operator_reconcile_errors_total", error="ChangedByOthers") or 0) > 0


@pytest.mark.finding("operator F1")
async def test_two_contents_that_alternate_are_slowed_down_as_well(bench: Bench, world: World) -> None:
    bench.database = READY
    bench.api.admit = serving(lambda _: None)
    await bench.reconcile(2)
    bench.api.writes.clear()
    for turn in range(400):
        bench.api.index["spec"]["embedder"]["gpuMemory"] = 100 + turn % 2
        world.now += timedelta(seconds=3)
        await bench.reconcile()
    assert bench.api.writes.count("Deployment") <= 30


@pytest.mark.finding("operator F1")
async def test_an_edit_now_and_then_is_undone_at_once(bench: Bench, world: World) -> None:
    bench.database = READY
    bench.api.admit = serving(lambda _: None)
    await bench.reconcile(2)
    for _ in range(5):
        own(bench.api.objects[EMBEDDER])["image"] = "evil:1"
        world.now += timedelta(minutes=11)
        await bench.reconcile()
        assert own(bench.api.objects[EMBEDDER])["image"] == "emb:1"


@pytest.mark.finding("operator F1")
async def test_a_finalizer_that_is_taken_off_each_time_is_added_with_a_growing_delay(
    bench: Bench, world: World
) -> None:
    bench.database = READY
    bench.api.index["spec"]["deletionPolicy"] = "Delete"
    for _ in range(100):
        bench.api.index["metadata"]["finalizers"] = []
        world.now += timedelta(seconds=3)
        await bench.reconcile()
    assert 0 < bench.api.writes.count("finalizer") <= 10


async def reconcile_with_a_job(bench: Bench, component: str, change: Admission) -> None:
    """Reconcile an object that needs a Job of this component, under admission that also lets Deployments serve."""
    bench.database = replace(READY, rows=RowCounts(total=500, pending=500), index=NO_INDEX)
    if component == "migrate":
        bench.database = replace(bench.database, schema_revision="0000")
    deployments = serving(lambda _: None)

    def admit(stored: Manifest) -> None:
        deployments(stored)
        change(stored)

    bench.api.admit = admit
    await bench.reconcile(6)


@pytest.mark.parametrize("component", ["migrate", "backfill"])
@pytest.mark.finding("operator F1")
async def test_a_job_that_admission_changes_is_made_once_and_its_field_is_named(bench: Bench, component: str) -> None:
    def rewrite_image(stored: Manifest) -> None:
        if stored["kind"] == "Job":
            own(stored)["image"] = "mirror.example/op:1"

    await reconcile_with_a_job(bench, component, rewrite_image)
    assert bench.api.writes.count("Job") == 1
    kind = {"migrate": "SchemaReady", "backfill": "Backfilled"}[component]
    message = bench.api.condition(kind)["message"]
    assert "Admission has changed spec.template.spec.containers[memory].image of Job mem-" in message
    assert bench.api.condition("Stalled")["status"] == "False"


@pytest.mark.parametrize("component", ["migrate", "backfill"])
async def test_a_job_whose_pods_admission_gives_a_secret_goes_on(bench: Bench, component: str) -> None:
    """Consent is asked for what the operator mounts, not for what a policy of the cluster adds to every pod."""

    def add_to_all(stored: Manifest) -> None:
        if stored["kind"] in {"Job", "Deployment"}:
            add_secrets(stored)

    await reconcile_with_a_job(bench, component, add_to_all)
    (job,) = [item for (kind, _, _), item in bench.api.objects.items() if kind == "Job"]
    assert job["metadata"]["labels"]["app.kubernetes.io/component"] == component
    assert not job["spec"].get("suspend")
    assert bench.api.writes.count("Job") == 1


@pytest.mark.parametrize("fails", [False, True])
async def test_of_the_objects_that_a_reconcile_reads_none_is_kept_until_the_next(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """Whoever may create objects in a namespace decides how large they are."""

    def failing(_writes: Writes, _observed: Observed, _wanted: object) -> list[Manifest]:
        raise RuntimeError

    bench.database = READY
    await bench.reconcile(3)
    if fails:
        monkeypatch.setattr(Writes, "doubtful", failing)
        await bench.reconcile()
    history: ObjectHistory = bench.controller._histories[KEY]
    assert (history.failures > 0) is fails
    assert not history.writes._live


async def test_what_is_remembered_of_objects_that_are_gone_is_forgotten(bench: Bench) -> None:
    bench.database = READY
    bench.api.admit = serving(MUTATIONS["processors"][0])
    await bench.reconcile(4)
    history: ObjectHistory = bench.controller._histories[KEY]
    assert ("Deployment", "mem-embedder") in history.writes._admissions
    bench.database = replace(READY, identity=None)
    bench.api.objects = {key: item for key, item in bench.api.objects.items() if key[0] != "Deployment"}
    bench.api.index["spec"]["suspend"] = True
    await bench.reconcile()
    assert ("Deployment", "mem-embedder") not in history.writes._admissions
