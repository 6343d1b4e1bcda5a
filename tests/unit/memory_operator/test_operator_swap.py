"""Another model in the specification: a second embedder, one Job, a flip, and one embedder again."""

from dataclasses import replace
from typing import Any

import pytest

from memory_operator.api.conditions import ConditionType
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import Manifest
from memory_operator.controller.observe import Observer
from memory_operator.controller.secret_reader import SecretReader
from memory_operator.reconcile.active_embedder import permitted_embedder
from memory_operator.reconcile.core import reconcile
from memory_operator.reconcile.facts import EmbedderLoad, JobState, Problem, ReportedModel
from memory_operator.reconcile.plan import Apply
from memory_operator.resources import workers
from memory_recall.embedding.apis import EmbedderApi
from memory_recall.schema.revisions import HEAD_REVISION
from memory_recall.status import NO_INDEX, RowCounts
from tests.unit.memory_operator.conftest import (
    FULL,
    HOSTED,
    HOSTED_MODEL,
    HOSTED_URL,
    MODEL,
    NEXT_MODEL,
    Cluster,
    World,
    swap_record,
)

NEXT = {"model": "bge-small-en-v1.5", "dimensions": 384}
GATE = {"configMap": {"name": "questions"}}
HOME = "http://mem-embedder.team.svc:8080"


def change(cluster: Cluster, **spec: Any) -> None:
    status = cluster.manifest["status"]
    metadata = {**cluster.manifest["metadata"], "generation": cluster.manifest["metadata"]["generation"] + 1}
    cluster.manifest = {**cluster.world.manifest(**spec), "status": status, "metadata": metadata}


def arguments(cluster: Cluster, name: str) -> list[str]:
    found: Manifest = cluster.children["Deployment", name]
    command: list[str] = found["spec"]["template"]["spec"]["containers"][0]["command"]
    return command


@pytest.fixture
def swap(world: World) -> Cluster:
    """A settled cluster whose specification has just been changed to another model."""
    cluster = Cluster(world, world.manifest())
    cluster.database = replace(FULL, active_model=replace(MODEL, embedder_url=HOME))
    for _ in range(5):
        cluster.reconcile()
    change(cluster, embedding=NEXT)
    return cluster


def flip(cluster: Cluster) -> None:
    cluster.finish("swap")
    served_beside = replace(NEXT_MODEL, embedder_url="http://mem-embedder-next.team.svc:8080")
    cluster.change(active_model=served_beside, next_model=None, swap=swap_record("flipped"))


def test_a_swap_leaves_the_active_models_objects_and_adds_the_next_models(swap: Cluster) -> None:
    """The specification no longer describes the active embedder, so nothing may be applied to it."""
    before = {key: swap.children[key] for key in swap.children}
    swap.reconcile()
    assert {key: swap.children[key] for key in before} == before
    assert "bge-small-en-v1.5" in arguments(swap, "mem-embedder-next")
    assert "all-MiniLM-L6-v2" in arguments(swap, "mem-embedder")
    assert ("Service", "mem-embedder-next") in swap.children
    assert ("NetworkPolicy", "mem-embedder-next") in swap.children


def test_the_swap_job_starts_once_the_next_embedder_serves(swap: Cluster) -> None:
    """Recalls use the active model meanwhile, and the conditions report it."""
    swap.reconcile()
    assert swap.running() == []
    swap.reconcile()
    assert swap.running() == ["swap"]
    swap.change(next_model=NEXT_MODEL, swap=swap_record("filling"))
    swap.reconcile()
    found = swap.condition("ModelActive")
    assert (found["status"], found["reason"]) == ("False", "Swapping")
    assert "recalls go on with all-MiniLM-L6-v2" in found["message"]
    assert swap.condition("EmbedderReady")["status"] == "True"
    assert swap.condition("Reconciling")["status"] == "True"
    assert swap.manifest["status"]["model"] == {"active": "all-MiniLM-L6-v2", "next": "bge-small-en-v1.5"}


def test_an_operator_that_was_rolled_back_goes_on_with_the_swap_on_the_later_schema(swap: Cluster) -> None:
    """Migrations only add, and the worker itself refuses rules that it does not know."""
    swap.change(schema_revision="9999")
    swap.reconcile()
    swap.reconcile()
    assert swap.running() == ["swap"]
    found = swap.condition("SchemaReady")
    assert (found["status"], found["reason"]) == ("True", "SchemaAhead")
    assert "of a later release; this one changes nothing of it" in found["message"]
    assert swap.condition("Stalled")["status"] == "False"


@pytest.mark.finding("D18")
def test_an_operator_upgrade_migrates_the_schema_during_a_swap(swap: Cluster) -> None:
    """The migration Job gets the active model, whose vectors the column holds; the swap continues after it."""
    change(swap, embedding={"model": "bge-large-en-v1.5", "dimensions": 1024})
    swap.change(schema_revision="0000")
    applied = [action.manifest for action in swap.reconcile().actions if isinstance(action, Apply)]
    (job,) = [manifest for manifest in applied if manifest["kind"] == "Job"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    values = {item["name"]: item["value"] for item in container["env"]}
    assert container["command"][:2] == ["memory", "migrate"]
    assert (values["MEMORY_MODEL"], values["MEMORY_DIMENSIONS"]) == ("all-MiniLM-L6-v2", "384")
    swap.finish("migrate")
    swap.change(schema_revision=HEAD_REVISION)
    swap.reconcile()
    swap.reconcile()
    assert swap.running() == ["swap"]


@pytest.mark.parametrize(("digest", "status"), [("sha256:aa", "True"), ("sha256:bb", "False")])
def test_another_file_of_the_active_model_is_noticed_during_a_swap(swap: Cluster, digest: str, status: str) -> None:
    """Recalls go on with the active model, and its pods may be replaced at any time."""
    swap.change(active_model=replace(MODEL, embedder_url=HOME, digest="sha256:aa"))
    served = EmbedderLoad("mem-embedder-0", 0.0, 0.0, model=ReportedModel("Pod mem-embedder-0", digest, None))
    observed = replace(swap.observe(), loads=(served,))
    world = swap.world
    plan = reconcile(swap.index, observed, world.images, world.now, world.intervals, permitted=world.permitted)
    verdict = plan.steps[ConditionType.EMBEDDER_READY].verdict
    assert (verdict.status.value, verdict.reason is Reason.MODEL_MISMATCH) == (status, status == "False")


def test_a_swap_writes_nothing_while_its_job_runs(swap: Cluster) -> None:
    """Observation alone causes no write."""
    for _ in range(3):
        swap.reconcile()
    swap.writes.clear()
    swap.reconcile()
    swap.reconcile()
    assert swap.writes == []


def test_the_second_embedder_is_deleted_only_after_the_ordinary_one_serves_the_new_model(swap: Cluster) -> None:
    """At every moment some pod serves the active model at the address that the database names."""
    swap.reconcile()
    swap.reconcile()
    flip(swap)
    swap.reconcile()
    assert "bge-small-en-v1.5" in arguments(swap, "mem-embedder")
    assert _sync_model(swap) == "all-MiniLM-L6-v2", "the sync worker waits for the embedder's roll-out"
    swap.reconcile()
    assert _sync_model(swap) == "bge-small-en-v1.5"
    assert ("Deployment", "mem-embedder-next") in swap.children
    assert swap.condition("ModelActive")["status"] == "False"
    swap.change(active_model=replace(NEXT_MODEL, embedder_url=HOME))
    swap.reconcile()
    assert ("Deployment", "mem-embedder-next") not in swap.children
    assert ("Service", "mem-embedder-next") not in swap.children
    swap.reconcile()
    assert swap.condition("Ready")["status"] == "True"


def test_a_new_default_image_does_not_hold_up_the_hand_over(swap: Cluster) -> None:
    """The ordinary embedder must not be taken for rolled over while it keeps the pods of the former model."""
    swap.reconcile()
    swap.reconcile()
    flip(swap)
    images = swap.world.images.model_copy(update={"embedder": "emb:2"})
    observed = replace(swap.observe(), rollout_admitted=False)
    observed = replace(observed, embedder=replace(observed.embedder, image="emb:1"))
    world = swap.world
    plan = reconcile(swap.index, observed, images, world.now, world.intervals, permitted=world.permitted)
    (embedder,) = [a.manifest for a in plan.actions if isinstance(a, Apply) and a.manifest["kind"] == "Deployment"]
    assert embedder["metadata"]["name"] == "mem-embedder"
    assert "bge-small-en-v1.5" in embedder["spec"]["template"]["spec"]["containers"][0]["command"]


def _sync_model(cluster: Cluster) -> str:
    container = cluster.children["Deployment", "mem-sync"]["spec"]["template"]["spec"]["containers"][0]
    return next(item["value"] for item in container["env"] if item["name"] == "MEMORY_MODEL")


def _stop_at_the_gate(cluster: Cluster, outcome: str, reason: Reason) -> None:
    """Let the swap's Job fail as `memory swap start` does when the gate is not passed."""
    cluster.reconcile()
    cluster.reconcile()
    cluster.finish("swap", JobState.FAILED, Problem(reason, "active 0.800, next 0.500"))
    cluster.change(swap=swap_record("refused", "active 0.800, next 0.500", outcome), next_model=NEXT_MODEL)
    cluster.reconcile()


@pytest.mark.parametrize(
    ("outcome", "reason"), [("refused", Reason.SWAP_REFUSED), ("undecided", Reason.SWAP_UNDECIDED)]
)
def test_a_model_that_does_not_pass_the_gate_stalls_with_the_measures_and_is_not_measured_again(
    swap: Cluster, outcome: str, reason: Reason
) -> None:
    """Another run would measure the same numbers."""
    _stop_at_the_gate(swap, outcome, reason)
    for _ in range(200):
        swap.reconcile()
    assert swap.running() == []
    found = swap.condition("Stalled")
    assert (found["status"], found["reason"]) == ("True", reason.code)
    assert "next 0.500" in found["message"]


def test_a_changed_gate_starts_another_swap(swap: Cluster) -> None:
    """A refused model may be accepted where a larger drop is tolerated."""
    _stop_at_the_gate(swap, "refused", Reason.SWAP_REFUSED)
    change(swap, embedding=NEXT, swap={"gate": {"configMap": {"name": "labels"}, "maxRecallDrop": 0.5}})
    swap.reconcile()
    assert swap.running() == ["swap"]


def test_naming_the_active_model_again_aborts_the_swap(swap: Cluster) -> None:
    """The Job is stopped first, then the second column is dropped, and nothing of the swap is left."""
    swap.reconcile()
    swap.reconcile()
    swap.change(next_model=NEXT_MODEL, swap=swap_record("filling"))
    change(swap)
    swap.reconcile()
    swap.reconcile()
    assert swap.running() == ["swap-abort"]
    assert ("Deployment", "mem-embedder-next") not in swap.children
    swap.finish("swap-abort")
    swap.change(next_model=None, swap=swap_record("aborted"))
    swap.reconcile()
    assert swap.condition("Ready")["status"] == "True"


def test_the_swap_job_gets_the_active_model_and_the_labelled_queries(swap: Cluster) -> None:
    """The gate's file is mounted; the environment names the active model, the command the next one."""
    from memory_operator.resources.workers import swap_job

    change(swap, embedding=NEXT, swap={"gate": {"configMap": {"name": "labels"}, "maxRecallDrop": 0.02}})
    job = swap_job(swap.index, swap.world.images, 0, active="all-MiniLM-L6-v2", dimensions=384)
    pod = job["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert container["command"] == [
        "memory", "swap", "start", "--model", "bge-small-en-v1.5", "--url", "http://mem-embedder-next.team.svc:8080",
        "--queries", "/var/run/memory-index-gate/queries.jsonl", "--max-drop", "0.02", "--json",
    ]  # fmt: skip
    values = {item["name"]: item["value"] for item in container["env"]}
    assert (values["MEMORY_MODEL"], values["MEMORY_EMBEDDER_URL"]) == ("all-MiniLM-L6-v2", HOME)
    assert pod["volumes"][-1]["configMap"]["name"] == "labels"
    assert job["spec"]["ttlSecondsAfterFinished"] == 2**31 - 1, "where there is none, a policy would add one"


def test_a_swap_with_an_external_embedder_deploys_nothing(world: World) -> None:
    """The Job uses the address of the specification."""
    external = {"external": {"url": "http://other.team.svc:9000"}}
    cluster = Cluster(world, world.manifest(embedding=NEXT, embedder=external))
    cluster.database = replace(FULL, rows=RowCounts(total=100, embedded=100))
    cluster.reconcile()
    assert cluster.running() == ["swap"]
    assert not [key for key in cluster.children if "next" in key[1]]


def job(cluster: Cluster) -> tuple[list[str], dict[str, str], set[str]]:
    """The swap Job's command, environment and the Secrets that it mounts."""
    observed = cluster.observe()
    facts = observed.database_facts
    assert facts is not None
    manifest = workers.swap_job(
        cluster.index,
        cluster.world.images,
        0,
        active=facts.active_name or "",
        dimensions=facts.embedding_dimensions or 0,
        served_by=permitted_embedder(cluster.index, observed, cluster.world.permitted),
    )
    pod = manifest["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    environment = {item["name"]: item["value"] for item in container["env"]}
    return container["command"], environment, {v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v}


def sync_environment(cluster: Cluster) -> dict[str, str]:
    container = cluster.children["Deployment", "mem-sync"]["spec"]["template"]["spec"]["containers"][0]
    return {item["name"]: item["value"] for item in container["env"]}


@pytest.fixture
def to_hosted(world: World) -> Cluster:
    """A settled cluster whose specification has just been changed from a local model to a hosted one."""
    cluster = Cluster(world, world.manifest(embedder={"apiKey": {"secretName": "own"}}))
    cluster.database = replace(FULL, active_model=replace(MODEL, embedder_url=HOME))
    for _ in range(5):
        cluster.reconcile()
    change(cluster, **HOSTED, swap={"gate": GATE})
    return cluster


@pytest.fixture
def to_local(world: World) -> Cluster:
    """A settled cluster whose specification has just been changed from a hosted model to a local one."""
    cluster = Cluster(world, world.manifest(**HOSTED))
    cluster.database = replace(FULL, active_model=HOSTED_MODEL, embedding_dimensions=1024)
    for _ in range(5):
        cluster.reconcile()
    assert ("Deployment", "mem-embedder") not in cluster.children
    change(cluster, embedding={**NEXT, "queryEgress": "Allowed"}, swap={"gate": GATE})
    return cluster


def test_a_swap_to_a_hosted_model_keeps_the_local_embedder_until_the_flip_and_passes_the_gate(
    to_hosted: Cluster,
) -> None:
    before = dict(to_hosted.children)
    to_hosted.reconcile()
    assert to_hosted.running() == ["swap"], "there is no embedder to wait for"
    (swap,) = to_hosted.jobs.values()
    assert {(to.url, to.options.api) for to in swap.sends_to} == {
        (HOME, EmbedderApi.MEMORY_INDEX),
        (HOSTED_URL, EmbedderApi.VOYAGE),
    }
    changed = {key for key in to_hosted.children if to_hosted.children[key] != before.get(key)}
    assert changed <= {("NetworkPolicy", "mem-workers")}
    command, environment, secrets = job(to_hosted)
    assert command[3:7] == ["--model", "voyage-3.5", "--url", HOSTED_URL]
    assert {"--api=Voyage", "--dimensions=1024", "--api-key-file"} <= set(command)
    assert "--queries" in command
    assert (environment["MEMORY_MODEL"], environment["MEMORY_EMBEDDER_URL"]) == ("all-MiniLM-L6-v2", HOME)
    assert "MEMORY_EMBEDDER_API" not in environment
    assert environment["MEMORY_QUERY_EGRESS"] == "allowed"
    assert secrets == {"dsn", "own", "voyage"}
    assert to_hosted.condition("EmbedderReady")["status"] == "True"
    to_hosted.finish("swap")
    to_hosted.change(active_model=HOSTED_MODEL, next_model=None, embedding_dimensions=1024, swap=swap_record("flipped"))
    to_hosted.reconcile()
    assert ("Deployment", "mem-embedder") not in to_hosted.children
    environment = sync_environment(to_hosted)
    assert (environment["MEMORY_EMBEDDER_API"], environment["MEMORY_MODEL"]) == ("Voyage", "voyage-3.5")
    assert environment["MEMORY_EMBEDDER_URL"] == HOSTED_URL
    to_hosted.reconcile()
    assert to_hosted.condition("Ready")["status"] == "True"


def test_a_swap_from_a_hosted_model_asks_both_embedders_and_hands_over_to_the_local_one(to_local: Cluster) -> None:
    hosted_sync = dict(to_local.children)["Deployment", "mem-sync"]
    to_local.reconcile()
    to_local.reconcile()
    assert to_local.running() == ["swap"]
    assert to_local.children["Deployment", "mem-sync"] == hosted_sync, "it goes on with the provider"
    command, environment, secrets = job(to_local)
    assert command[3:7] == ["--model", "bge-small-en-v1.5", "--url", "http://mem-embedder-next.team.svc:8080"]
    assert (environment["MEMORY_EMBEDDER_API"], environment["MEMORY_MODEL"]) == ("Voyage", "voyage-3.5")
    assert environment["MEMORY_EMBEDDER_URL"] == HOSTED_URL
    assert secrets == {"dsn", "voyage"}
    flip(to_local)
    to_local.change(embedding_dimensions=384)
    for _ in range(3):
        to_local.reconcile()
    assert "bge-small-en-v1.5" in arguments(to_local, "mem-embedder")
    assert "MEMORY_EMBEDDER_API" not in sync_environment(to_local)
    to_local.change(active_model=replace(NEXT_MODEL, embedder_url=HOME))
    to_local.reconcile()
    to_local.reconcile()
    assert ("Deployment", "mem-embedder-next") not in to_local.children
    assert to_local.condition("Ready")["status"] == "True"


def test_once_consent_is_withdrawn_no_worker_sends_texts_to_the_hosted_provider(to_local: Cluster) -> None:
    """The rows of the meantime wait for the next model, and the swap goes on without the provider."""
    change(to_local, embedding=NEXT)
    to_local.reconcile()
    to_local.reconcile()
    assert to_local.replicas("mem-sync") == 0
    _, environment, secrets = job(to_local)
    assert secrets == {"dsn"}
    assert "MEMORY_QUERY_EGRESS" not in environment
    assert "queryEgress is Denied" in to_local.condition("Backfilled")["message"]
    assert to_local.condition("EmbedderReady")["status"] == "False"
    assert to_local.running() == ["swap"]


def test_once_consent_is_withdrawn_a_backfill_that_sends_texts_to_the_provider_is_ended(world: World) -> None:
    """With consent it goes on during the swap."""
    cluster = Cluster(world, world.manifest(**HOSTED))
    cluster.database = replace(
        FULL,
        active_model=HOSTED_MODEL,
        embedding_dimensions=1024,
        rows=RowCounts(total=1000, pending=1000),
        index=NO_INDEX,
    )
    for _ in range(3):
        cluster.reconcile()
    assert cluster.running() == ["backfill"]
    change(cluster, embedding={**NEXT, "queryEgress": "Allowed"})
    cluster.reconcile()
    assert "backfill" in cluster.running()
    change(cluster, embedding=NEXT)
    cluster.reconcile()
    assert "backfill" not in cluster.running()


async def test_the_keys_of_both_embedders_need_the_word_of_their_secrets_during_a_swap(to_hosted: Cluster) -> None:
    class Kube:
        async def get(self, _kind: str, _namespace: str, name: str) -> Manifest:
            labels = {"memory-index.dev/allow": "api-key" if name == "voyage" else "dsn"}
            return {"metadata": {"name": name, "labels": labels}, "data": {"apiKey": "eA=="}}

    observer = Observer(Kube(), None, None)  # type: ignore[arg-type]  # only what is needed here
    sync = to_hosted.children["Deployment", "mem-sync"]
    secrets = SecretReader(observer._kube, "team")
    problem = await observer._active_external(to_hosted.index, secrets, to_hosted.database, sync)
    assert isinstance(problem, Problem)
    assert (problem.reason, "team/own" in problem.message) == (Reason.CONSENT_MISSING, True)
