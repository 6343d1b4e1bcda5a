"""What is deleted is the very object that was observed; another one that has its name by now stays."""

from typing import Any

import pytest

from memory_operator.api.reasons import Reason
from memory_operator.api.spec import FINALIZER
from memory_operator.clients.kube import KubeError, NameTakenError
from memory_operator.reconcile.facts import JobFacts, JobState
from memory_operator.reconcile.plan import Delete
from memory_operator.resources import cnpg
from tests.unit.memory_operator.api_server import Answer, Connect, Sent, connect, failure
from tests.unit.memory_operator.conftest import FULL, Cluster, World, deep_update
from tests.unit.memory_operator.test_operator_controller import Bench, bench
from tests.unit.memory_operator.test_operator_execution import delete, events

__all__ = ["bench", "connect"]  # the fixtures
CONFLICT = failure(409, "the UID in the precondition (j-1) does not match the UID in record (j-2)")


def refusing(live: dict[str, Any] | None) -> Any:
    """An API server that refuses to delete, and that holds this object."""
    found = Answer(200, live) if live else failure(404, "not found")
    return lambda sent: CONFLICT if sent.method == "DELETE" else found


def methods(sent: list[Sent]) -> list[str]:
    return [one.method for one in sent]


async def test_the_uid_of_the_observed_object_is_the_condition_of_its_deletion(connect: Connect) -> None:
    kube, sent = await connect(Answer(200, {"kind": "Status", "status": "Success"}))
    await kube.delete("Job", "team", "mem-migrate-x", "j-1")
    assert methods(sent) == ["DELETE"]
    assert sent[0].path == "/apis/batch/v1/namespaces/team/jobs/mem-migrate-x"
    assert sent[0].content_type == "application/json"
    assert sent[0].body["kind"] == "DeleteOptions"
    assert sent[0].body["preconditions"] == {"uid": "j-1"}
    assert sent[0].body["propagationPolicy"] == "Background", "the query is ignored beside a body"


async def test_another_object_of_the_same_name_is_refused_as_not_ours(connect: Connect) -> None:
    kube, _ = await connect(refusing({"metadata": {"uid": "j-2"}}))
    with pytest.raises(NameTakenError) as caught:
        await kube.delete("Job", "team", "mem-migrate-x", "j-1")
    assert caught.value.refused
    assert caught.value.reason is Reason.NAME_TAKEN
    assert caught.value.text == "Job team/mem-migrate-x exists and does not belong to this MemoryIndex."


@pytest.mark.parametrize("live", [{"metadata": {"uid": "j-1"}}, None], ids=["the same", "gone meanwhile"])
async def test_another_conflict_is_tried_again(connect: Connect, live: dict[str, Any] | None) -> None:
    kube, _ = await connect(refusing(live))
    with pytest.raises(KubeError) as caught:
        await kube.delete("Job", "team", "mem-migrate-x", "j-1")
    assert not isinstance(caught.value, NameTakenError)
    assert (caught.value.code, caught.value.refused) == (409, False)


async def test_an_object_that_is_gone_already_needs_no_deletion(connect: Connect) -> None:
    kube, sent = await connect(failure(404, "not found"))
    await kube.delete("Job", "team", "mem-migrate-x", "j-1")
    assert methods(sent) == ["DELETE"]


def test_each_write_that_deletes_names_the_uid_that_was_observed(cluster: Cluster) -> None:
    """The cluster of these tests refuses any other uid, in every life of an object; this life has all kinds deleted."""
    cluster.until_ready()
    (database,) = cluster.cnpg.values()
    cluster.manifest["spec"] = deep_update(cluster.manifest["spec"], {"embedder": {"external": {"url": "http://e:80"}}})
    removed = [action for action in cluster.reconcile().actions if isinstance(action, Delete)]
    cluster.jobs["stray"] = JobFacts("stray", "backfill", "x", 0, JobState.ACTIVE, uid="j-9")
    cluster.delete(deletionPolicy="Delete")
    stopped = [action for action in cluster.reconcile().actions if isinstance(action, Delete)]
    cluster.change(schema_revision=None)
    last = [action for action in cluster.reconcile().actions if isinstance(action, Delete)]
    found = {action.kind: action.uid for action in (*removed, *stopped, *last)}
    assert found == {
        "Deployment": "Deployment mem-sync", "Service": "Service mem-embedder",
        "NetworkPolicy": "NetworkPolicy mem-embedder", "Job": "j-9", "Database": database["metadata"]["uid"],
    }  # fmt: skip
    assert cluster.gone


async def test_a_database_object_that_somebody_has_replaced_stays_and_is_named(bench: Bench, world: World) -> None:
    bench.database = FULL
    ours = cnpg.new_database_object(world.index(), cluster=("dbaas", "pg"), owner="owner", version=None)
    seen = deep_update(ours, {"metadata": {"uid": "d-1"}})
    meta = {"namespace": "dbaas", "name": ours["metadata"]["name"], "uid": "d-2"}
    key = ("Database", "dbaas", meta["name"])
    bench.api.objects[key] = {"kind": "Database", "metadata": meta}
    delete(bench)
    bench.api.index["metadata"]["finalizers"] = [FINALIZER]
    get_list = bench.api.list

    async def stale(kind: str, *place: Any) -> list[dict[str, Any]]:
        return [seen] if kind == "Database" else await get_list(kind, *place)

    bench.api.list = stale  # type: ignore[method-assign]  (a list from before the replacement)
    await bench.reconcile()
    assert key in bench.api.objects
    (event,) = events(bench)
    assert "does not belong to this MemoryIndex" in event["message"]
