"""While the database does not answer, nobody knows what the vectors were made with: no pod is replaced or deleted."""

from dataclasses import replace
from typing import Any

import pytest

from memory_operator.api.reasons import Reason
from memory_operator.controller.rollouts import rolls_out_default_image
from memory_operator.reconcile.core import reconcile
from memory_operator.reconcile.facts import EmbedderLoad, Observed, Problem
from memory_operator.reconcile.plan import Apply, Delete, Plan
from memory_operator.resources.common import Images
from tests.unit.memory_operator.conftest import FULL, HOSTED, MODEL, Cluster, World, condition

FILE, OTHER_FILE = "sha256:" + "a" * 64, "sha256:" + "b" * 64
AWAY = Problem(Reason.DATABASE_UNREACHABLE, "connection refused.")
NO_SECRET = Problem(Reason.SECRET_MISSING, "Secret team/dsn does not exist.")
NO_CLUSTER = Problem(Reason.CLUSTER_MISSING, "Cluster dbaas/pg does not exist.")
OUTAGES: dict[str, dict[str, Any]] = {
    "a database that does not answer": {"database": AWAY},
    "a Secret that was deleted": {"database": None, "credentials": NO_SECRET},
    "a Cluster that was deleted": {"database": None, "cluster": NO_CLUSTER},
}
NEXT = {"model": "bge-small-en-v1.5", "dimensions": 384}
EXTERNAL = {"external": {"url": "http://e.ml.svc:8080"}, "gpuLayers": -1}
RESOURCES = {"gpuLayers": 0, "resources": {"limits": {"memory": "3Gi"}}}


def source(digest: str) -> dict[str, Any]:
    return {"source": {"pvc": {"claimName": "models", "path": "m.gguf", "digest": digest}}}


EDITS: dict[str, dict[str, Any]] = {
    "another model": {"embedding": NEXT},
    "another file of the model": {"embedding": source(OTHER_FILE)},
    "a hosted model": HOSTED,
    "an external embedder": {"embedder": EXTERNAL},
    "other resources": {"embedding": source(FILE), "embedder": RESOURCES},
}
each_edit = pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
each_outage = pytest.mark.parametrize("outage", OUTAGES.values(), ids=OUTAGES)


def change(cluster: Cluster, **spec: Any) -> None:
    status = cluster.manifest["status"]
    metadata = {**cluster.manifest["metadata"], "generation": cluster.manifest["metadata"]["generation"] + 1}
    cluster.manifest = {**cluster.world.manifest(**spec), "status": status, "metadata": metadata}


@pytest.fixture
def serving(world: World) -> Cluster:
    """A settled cluster whose vectors were made with the file that its embedder serves."""
    cluster = Cluster(world, world.manifest(embedding=source(FILE)))
    cluster.database = replace(FULL, active_model=replace(MODEL, digest=FILE))
    for _ in range(5):
        cluster.reconcile()
    assert cluster.condition("Ready")["status"] == "True"
    return cluster


def decide(cluster: Cluster, /, **facts: Any) -> Plan:
    observed = Observed(**{**vars(cluster.observe()), **facts})
    world = cluster.world
    return reconcile(cluster.index, observed, world.images, world.now, world.intervals, permitted=world.permitted)


@each_outage
@each_edit
def test_no_edit_changes_or_deletes_an_object_of_the_embedder_during_an_outage(
    serving: Cluster, edit: dict[str, Any], outage: dict[str, Any]
) -> None:
    change(serving, **edit)
    plan = decide(serving, **outage)
    assert plan.actions == ()
    assert condition(plan, "Ready")["status"] == "False"


@each_outage
@each_edit
def test_an_outage_in_the_middle_of_a_change_changes_nothing_either(
    serving: Cluster, edit: dict[str, Any], outage: dict[str, Any]
) -> None:
    """A swap is under way, or a file was refused, when the database stops answering."""
    change(serving, **edit)
    serving.reconcile()
    serving.reconcile()
    actions = decide(serving, **outage).actions
    assert [action for action in actions if isinstance(action, Delete)] == []
    names = {action.manifest["metadata"]["name"] for action in actions if isinstance(action, Apply)}
    assert not names & {"mem-embedder", "mem-embedder-next"}


def test_a_swap_goes_on_with_the_active_embedder_as_it_was_after_an_outage(serving: Cluster) -> None:
    change(serving, embedding=NEXT)
    serving.reconcile()
    answered, template = serving.database, _template(serving)
    serving.database = AWAY
    serving.reconcile()
    found = serving.condition("EmbedderReady")
    assert (found["status"], found["reason"]) == ("True", "Available")
    assert "Its pods are changed only once the database answers." in found["message"]
    serving.database = answered
    serving.reconcile()
    assert _template(serving) == template
    assert serving.running() == ["swap"]
    assert "serves all-MiniLM-L6-v2" in serving.condition("EmbedderReady")["message"]


def test_an_edit_is_carried_out_once_the_database_answers_again(serving: Cluster) -> None:
    answered = serving.database
    serving.database = AWAY
    change(serving, **EDITS["other resources"])
    serving.reconcile()
    serving.database = answered
    serving.reconcile()
    assert _template(serving)["spec"]["containers"][0]["resources"] == RESOURCES["resources"]


@pytest.mark.parametrize("edit", ["a hosted model", "an external embedder"])
def test_an_embedder_of_our_own_stays_until_the_database_says_that_it_is_not_needed(
    serving: Cluster, edit: str
) -> None:
    change(serving, **EDITS[edit])
    found = condition(decide(serving, database=AWAY), "EmbedderReady")
    assert (found["status"], found["reason"]) == ("Unknown", "Waiting")
    assert "Deployment team/mem-embedder stays" in found["message"]


def test_what_is_wrong_with_an_external_embedders_key_is_said_during_an_outage(serving: Cluster) -> None:
    change(serving, embedder=EXTERNAL)
    problem = Problem(Reason.EMBEDDER_UNAUTHORIZED, "It answered 401.")
    assert condition(decide(serving, database=AWAY, external=problem), "EmbedderReady")["reason"] == problem.reason.code


@pytest.mark.parametrize("edit", ["another model", "other resources"])
def test_the_pods_are_still_scaled_and_guarded_during_an_outage(serving: Cluster, edit: str) -> None:
    spec = EDITS[edit]
    change(serving, **{**spec, "embedder": {**spec.get("embedder", {"gpuLayers": 0}), "maxReplicas": 3}})
    del serving.children["NetworkPolicy", "mem-embedder"]
    template = _template(serving)
    busy = (EmbedderLoad("mem-embedder-0", queued_tokens=1e6, tokens_per_second=100.0),)
    actions = decide(serving, database=AWAY, loads=busy).actions
    applied = [action.manifest for action in actions if isinstance(action, Apply)]
    assert [one["kind"] for one in applied] == ["NetworkPolicy", "Deployment"]
    assert applied[-1]["spec"]["replicas"] == 3
    assert applied[-1]["spec"]["template"] == template


def test_who_may_call_an_embedder_stays_as_it_was_where_the_specification_no_longer_says_it(world: World) -> None:
    callers = [{"namespaceSelector": {"matchLabels": {"team": "chat"}}}]
    cluster = Cluster(world, world.manifest(embedder={"gpuLayers": 0, "allowFrom": callers}))
    cluster.database = FULL
    cluster.reconcile()
    change(cluster, embedder=EXTERNAL)
    assert decide(cluster, database=AWAY).actions == ()


def test_another_number_of_pods_is_not_taken_for_the_roll_out_of_a_new_default_image(serving: Cluster) -> None:
    """It would take the turn of an object that does roll out."""
    change(serving, embedding=source(FILE), embedder={"gpuLayers": 0, "minReplicas": 2, "maxReplicas": 2})
    serving.world.images = images = Images(operator="op:1", embedder="emb:2")
    live = serving.observe().embedder
    assert live is not None
    older = replace(live, image="emb:1")
    observed = replace(serving.observe(), embedder=older)
    scaling = decide(serving, database=AWAY, embedder=older)
    assert [action.manifest["kind"] for action in scaling.actions if isinstance(action, Apply)] == ["Deployment"]
    assert not rolls_out_default_image(serving.index, observed, images, scaling)
    assert rolls_out_default_image(serving.index, observed, images, decide(serving, embedder=older))


def test_a_deleted_deployment_comes_back_only_once_the_database_answers(serving: Cluster) -> None:
    """The status has the name of the active model, but neither its file nor whether it is still the active one."""
    answered = serving.database
    del serving.children["Deployment", "mem-embedder"]
    serving.database = AWAY
    serving.reconcile()
    assert ("Deployment", "mem-embedder") not in serving.children
    found = serving.condition("EmbedderReady")
    assert (found["status"], found["reason"], found["message"]) == ("Unknown", "Waiting", "Waiting for the database.")
    serving.database = answered
    serving.reconcile()
    assert FILE in _template(serving)["spec"]["containers"][0]["command"]


def test_no_model_file_is_deleted_or_fetched_during_an_outage(serving: Cluster) -> None:
    """A file that the specification does not name may be that of the active model."""
    file = {"url": "https://models.example/m.gguf", "sha256": "a" * 64}
    change(serving, embedding={"source": {"http": file}})
    serving.reconcile()
    assert serving.running() == ["fetch"]
    assert decide(serving, database=AWAY).actions == ()
    change(serving, embedding=source(FILE))
    assert [action.kind for action in decide(serving).actions if isinstance(action, Delete)] != []
    assert decide(serving, database=AWAY).actions == ()
    change(serving, embedding={"source": {"http": {**file, "sha256": "b" * 64}}})
    assert decide(serving, database=AWAY).actions == ()


def _template(cluster: Cluster) -> dict[str, Any]:
    template: dict[str, Any] = cluster.children["Deployment", "mem-embedder"]["spec"]["template"]
    return template
