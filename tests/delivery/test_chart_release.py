"""The life of a helm release under recalls: installed as 5ed9431, upgraded, rolled back, upgraded again, uninstalled.

Recalls go on all the time, with the library of that commit and with the present one. At the end the operator works with
a definition that knows more than it does, and refuses to work with the one of the release before it.
"""

import asyncio
import json
import random
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest
import yaml

from devcluster.cluster import Cluster
from devcluster.demo import follow
from devcluster.install import OPERATOR_NAMESPACE, install_operator
from devcluster.postgres import create_postgres
from memory_bench.upgrade.former import COMMITS, LAST_COMMIT
from memory_bench.upgrade.on_cluster import (
    ROWS,
    UpgradeNamespace,
    Versions,
    install_former,
    load_versions,
    settled,
    until,
    until_ready,
)
from memory_bench.upgrade.outcome import head_revision
from tests.delivery.installed import OUR_DEFINITION
from tests.delivery.settling import RESYNC, assert_settled
from tests.support.invented import question, texts
from tests.support.recalling.loop import RecallLoop

RELEASE = "memory-index"
DEFINITION = "memoryindexes.memory-index.dev"
ANSWERS = 10  # of each client, in each state of the release
NAMED = ("-n", OPERATOR_NAMESPACE)


@pytest.fixture(scope="module")
def former(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[UpgradeNamespace, Versions]]:
    """An object that the operator of 5ed9431, installed with its own chart, has brought to Ready."""
    versions = load_versions(cluster, tmp_path_factory.mktemp("former"))
    postgres = create_postgres(cluster, namespace="release-dbaas", name="pg-release", storage="1Gi")
    namespace = UpgradeNamespace(postgres, "released")
    install_former(cluster, versions)
    namespace.create()
    namespace.start_toolboxes(versions)
    namespace.fill(texts(ROWS))
    namespace.apply_object()
    yield namespace, versions
    cluster.kubectl("delete", "crd", DEFINITION, "--ignore-not-found", "--wait", "--timeout=240s")
    for name in (namespace.name, postgres.namespace):
        cluster.kubectl("delete", "namespace", name, "--wait", "--timeout=300s")


def apply_definition(cluster: Cluster, text: str) -> None:
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=text)
    cluster.kubectl("wait", "--for=condition=Established", f"crd/{DEFINITION}", "--timeout=240s")


def upgrade(namespace: UpgradeNamespace, versions: Versions) -> None:
    """Upgrade to this checkout as docs/upgrade.md says: the definition, then the operator."""
    images = versions.present
    install_operator(
        namespace.cluster, operator_image=images.operator, embedder_image=images.embedder, settings=[RESYNC]
    )


def helm(cluster: Cluster, *arguments: str) -> str:
    return cluster.helm(*arguments, f"--namespace={OPERATOR_NAMESPACE}")


def descriptions(cluster: Cluster) -> list[str]:
    """Return what the release's revisions were, the first one first."""
    return [entry["description"] for entry in json.loads(helm(cluster, "history", RELEASE, "-o", "json"))]


def resource_version(namespace: UpgradeNamespace) -> str:
    return str(namespace.object()["metadata"]["resourceVersion"])


def with_a_field_more(definition: str) -> str:
    """Return a definition of a later minor version: one field more in spec, and one in status."""
    body: dict[str, Any] = yaml.safe_load(definition)
    (served,) = body["spec"]["versions"]
    properties = served["schema"]["openAPIV3Schema"]["properties"]
    later = {"type": "string", "description": "A field of a later version."}
    properties["spec"]["properties"]["later"] = later
    properties["status"]["properties"]["later"] = later
    return yaml.safe_dump(body, sort_keys=False)


async def work_with_a_newer_definition(namespace: UpgradeNamespace) -> None:
    """Have the present operator work with a definition of a later version until it is settled, and put its own back."""
    cluster = namespace.cluster
    apply_definition(cluster, with_a_field_more(OUR_DEFINITION))
    patch = json.dumps({"spec": {"later": "x"}})
    await asyncio.to_thread(namespace.kubectl, "patch", "memoryindex", "mi", "--type=merge", "--patch", patch)
    await until_ready(namespace)
    await asyncio.to_thread(assert_settled, cluster, lambda: resource_version(namespace))
    assert follow.view(namespace.object()).ready
    assert namespace.object()["spec"]["later"] == "x"
    apply_definition(cluster, OUR_DEFINITION)
    await until_ready(namespace)


async def refuse_an_older_definition(namespace: UpgradeNamespace, definition: str) -> None:
    """Have the present operator say that a definition is older than itself, and go on when its own is back."""
    apply_definition(namespace.cluster, definition)
    await until("the operator says so", lambda: "older than this operator" in ready_message(namespace))
    apply_definition(namespace.cluster, OUR_DEFINITION)
    await until_ready(namespace)


def ready_message(namespace: UpgradeNamespace) -> str:
    return follow.view(namespace.object()).condition("Ready").message


async def live(namespace: UpgradeNamespace, versions: Versions, loops: list[RecallLoop]) -> None:
    """Lead the release through its life as far as recalls must be complete, with answers in every state of it."""
    cluster = namespace.cluster

    async def answers() -> None:
        for loop in loops:
            await loop.wait_for_answers(ANSWERS)

    await answers()
    apply_definition(cluster, OUR_DEFINITION)  # before the operator, which stays the former one for a while
    await until_ready(namespace)
    await answers()
    await asyncio.to_thread(upgrade, namespace, versions)
    await until("Ready at head", lambda: settled(namespace, head_revision(), without=versions.former))
    for loop in loops:
        await loop.wait_until_complete()
    await answers()
    await asyncio.to_thread(helm, cluster, "rollback", RELEASE, "--wait", "--timeout=240s")
    await until("Ready again", lambda: settled(namespace, COMMITS[LAST_COMMIT], without=versions.present))
    await answers()
    await asyncio.to_thread(upgrade, namespace, versions)
    await until("Ready at head again", lambda: settled(namespace, head_revision(), without=versions.former))
    await answers()
    former_definition = (versions.former_chart / "crds" / "memoryindexes.yaml").read_text(encoding="utf-8")
    await work_with_a_newer_definition(namespace)
    await refuse_an_older_definition(namespace, former_definition)
    await answers()


def uninstall(cluster: Cluster) -> None:
    """Uninstall as docs/install.md says: the objects, the release, the definition."""
    cluster.kubectl("delete", "memoryindexes", "-A", "--all", "--wait", "--timeout=240s")
    helm(cluster, "uninstall", RELEASE, "--wait", "--timeout=240s")
    cluster.kubectl("delete", "crd", DEFINITION, "--wait", "--timeout=240s")


@pytest.mark.timeout(1800)
async def test_a_release_is_upgraded_rolled_back_and_uninstalled_without_a_failing_recall(
    former: tuple[UpgradeNamespace, Versions], figures: dict[str, Any]
) -> None:
    """The present library has no error and no answer by words; rows and vectors stay when everything is uninstalled."""
    namespace, versions = former
    generator = random.Random(3)  # noqa: S311  (the same questions in every run)
    questions = [question(text, generator) for text in generator.sample(texts(ROWS), 20)]
    await until_ready(namespace)
    before = await asyncio.to_thread(namespace.contents)
    async with AsyncExitStack() as stack:
        loops = [
            await stack.enter_async_context(RecallLoop(which, partial(namespace.spawn_recalls, which), questions))
            for which in ("former", "present")
        ]
        try:
            await live(namespace, versions, loops)
        finally:
            former_faults, present_faults = (loop.faults() for loop in loops)
            figures["helm_upgrade_recalls"] = sum(len(loop.answers) for loop in loops)
            figures["helm_upgrade_recall_errors"] = len(present_faults)
            figures["helm_upgrade_former_library_errors"] = len(former_faults)
        done = descriptions(namespace.cluster)
        figures["rollback"] = any(entry.startswith("Rollback to 1") for entry in done)
        await asyncio.to_thread(uninstall, namespace.cluster)
        for loop in loops:
            since = await loop.wait_for_answers(ANSWERS)
            assert [answer.error for answer in since if answer.error] == []
    after = await asyncio.to_thread(namespace.contents)
    assert (before.rows_lost_in(after), before.vectors_lost_in(after)) == (0, 0)
    assert present_faults == []
    assert all("degraded" in fault for fault in former_faults), former_faults
    assert figures["rollback"], done


def test_what_was_uninstalled_has_left_nothing_behind(cluster: Cluster) -> None:
    """No role, no Deployment, no service account and no definition of ours."""
    ours = "-lapp.kubernetes.io/part-of=memory-index"
    assert cluster.kubectl("get", "clusterroles,clusterrolebindings", ours, "-o", "name") == ""
    assert cluster.kubectl(*NAMED, "get", "deployments,serviceaccounts,roles", ours, "-o", "name") == ""
    assert cluster.kubectl("get", "crd", DEFINITION, "--ignore-not-found", "-o", "name") == ""
