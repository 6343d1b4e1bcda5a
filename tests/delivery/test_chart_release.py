"""The life of a helm release under recalls: installed, upgraded, rolled back, upgraded again, uninstalled.

Until a version has been released, an upgrade is one of the chart's values: the operator's pod is replaced, and helm has
two revisions between which it can go back and forth. The embedder's pods are replaced meanwhile, too. At the end the
operator works with a definition that knows more than it does, and refuses to work with one that knows less.
"""

import asyncio
import json
import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import yaml

import devcluster
from devcluster.cluster import Cluster
from devcluster.images.project import ProjectImages
from devcluster.install import OPERATOR_NAMESPACE, install_operator
from devcluster.postgres import create_postgres
from tests.delivery.installed import OUR_DEFINITION
from tests.delivery.settling import RESYNC, assert_settled
from tests.support.cluster.memories import rows
from tests.support.cluster.tenants import SMALL, Tenant
from tests.support.invented import question
from tests.support.recalling.loop import RecallLoop
from tests.support.recalling.pods import spawn_recalls
from tests.support.waiting import eventually

RELEASE = "memory-index"
DEFINITION = "memoryindexes.memory-index.dev"
MEMORIES = rows(60)
ANSWERS = 10  # of each client, in each state of the release
MORE_MEMORY = "1200Mi"
CONTENTS = "SELECT count(*), count(embedding), md5(string_agg(to_jsonb(m)::text, '' ORDER BY id)) FROM memories m"
NAMED = ("-n", OPERATOR_NAMESPACE)


@pytest.fixture(scope="module")
def released(cluster: Cluster) -> Iterator[tuple[Tenant, ProjectImages]]:
    """An object that the operator, installed with its chart, has brought to Ready."""
    images = devcluster.load_images(cluster)
    install_operator(cluster, operator_image=images.operator, embedder_image=images.embedder)
    postgres = create_postgres(cluster, namespace="release-dbaas", name="pg-release", storage="1Gi")
    tenant = Tenant(postgres, "released", images.operator)
    tenant.create()
    tenant.store(MEMORIES)
    tenant.start_toolbox()
    tenant.apply_index()
    tenant.wait_ready()
    yield tenant, images
    cluster.kubectl("delete", "crd", DEFINITION, "--ignore-not-found", "--wait", "--timeout=240s")
    for name in (tenant.name, postgres.namespace):
        cluster.kubectl("delete", "namespace", name, "--wait", "--timeout=300s")


def apply_definition(cluster: Cluster, text: str) -> None:
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=text)
    cluster.kubectl("wait", "--for=condition=Established", f"crd/{DEFINITION}", "--timeout=240s")


def upgrade(tenant: Tenant, images: ProjectImages) -> None:
    """Upgrade as docs/upgrade.md says: the definition, then the operator."""
    install_operator(tenant.cluster, operator_image=images.operator, embedder_image=images.embedder, settings=[RESYNC])
    tenant.wait_ready()


def roll_out_embedder(tenant: Tenant) -> None:
    """Give the embedder's pods more memory, and wait until none of the pods before is left."""
    limits = {**SMALL["limits"], "memory": MORE_MEMORY}
    tenant.apply_index(embedder__resources={**SMALL, "limits": limits})
    shown = ("get", "deployment", "mi-embedder", "-o", "jsonpath={.spec.template.spec.containers[*].resources.limits}")
    eventually(lambda: tenant.kubectl(*shown), lambda found: MORE_MEMORY in found, what="the pods' new template")
    tenant.kubectl("rollout", "status", "deployment/mi-embedder", "--timeout=240s")
    tenant.wait_ready()


def helm(cluster: Cluster, *arguments: str) -> str:
    return cluster.helm(*arguments, f"--namespace={OPERATOR_NAMESPACE}")


def roll_back(tenant: Tenant) -> None:
    helm(tenant.cluster, "rollback", RELEASE, "--wait", "--timeout=240s")
    tenant.wait_ready()


def descriptions(cluster: Cluster) -> list[str]:
    """Return what the release's revisions were, the first one first."""
    return [entry["description"] for entry in json.loads(helm(cluster, "history", RELEASE, "-o", "json"))]


def resource_version(tenant: Tenant) -> str:
    return str(tenant.index()["metadata"]["resourceVersion"])


def with_a_field_more(definition: str) -> str:
    """Return a definition of a later minor version: one field more in spec, and one in status."""
    body: dict[str, Any] = yaml.safe_load(definition)
    properties = _properties(body)
    later = {"type": "string", "description": "A field of a later version."}
    properties["spec"]["properties"]["later"] = later
    properties["status"]["properties"]["later"] = later
    return yaml.safe_dump(body, sort_keys=False)


def without_the_server(definition: str) -> str:
    """Return a definition of an earlier version, whose status has no field for the server's identity."""
    body: dict[str, Any] = yaml.safe_load(definition)
    del _properties(body)["status"]["properties"]["database"]["properties"]["systemIdentifier"]
    return yaml.safe_dump(body, sort_keys=False)


def _properties(definition: dict[str, Any]) -> dict[str, Any]:
    (served,) = definition["spec"]["versions"]
    properties: dict[str, Any] = served["schema"]["openAPIV3Schema"]["properties"]
    return properties


def work_with_a_newer_definition(tenant: Tenant) -> None:
    """Have the operator work with a definition of a later version until it is settled, and put its own back."""
    apply_definition(tenant.cluster, with_a_field_more(OUR_DEFINITION))
    tenant.kubectl("patch", "memoryindex", "mi", "--type=merge", "--patch", json.dumps({"spec": {"later": "x"}}))
    tenant.wait_ready()
    assert_settled(tenant.cluster, lambda: resource_version(tenant))
    assert tenant.view().ready
    assert tenant.index()["spec"]["later"] == "x"
    apply_definition(tenant.cluster, OUR_DEFINITION)
    tenant.wait_ready()


def refuse_an_older_definition(tenant: Tenant) -> None:
    """Have the operator say that a definition is older than itself, and go on when its own is back."""
    apply_definition(tenant.cluster, without_the_server(OUR_DEFINITION))
    message = "the operator's message"
    eventually(
        lambda: tenant.view().condition("Ready").message, lambda told: "older than this operator" in told, what=message
    )
    apply_definition(tenant.cluster, OUR_DEFINITION)
    tenant.wait_ready()


def uninstall(cluster: Cluster) -> None:
    """Uninstall as docs/install.md says: the objects, the release, the definition."""
    cluster.kubectl("delete", "memoryindexes", "-A", "--all", "--wait", "--timeout=240s")
    helm(cluster, "uninstall", RELEASE, "--wait", "--timeout=240s")
    cluster.kubectl("delete", "crd", DEFINITION, "--wait", "--timeout=240s")


@pytest.mark.timeout(1800)
async def test_a_release_is_upgraded_rolled_back_and_uninstalled_without_a_failing_recall(
    released: tuple[Tenant, ProjectImages], figures: dict[str, Any]
) -> None:
    """No recall has an error or is by words alone; rows and vectors stay when everything is uninstalled."""
    tenant, images = released
    generator = random.Random(3)  # noqa: S311  (the same questions in every run)
    asked = generator.sample([one.content for one in MEMORIES if not one.is_sensitive], 20)
    questions = [question(text, generator) for text in asked]
    before = await asyncio.to_thread(tenant.sql, CONTENTS)
    async with RecallLoop("present", partial(spawn_recalls, tenant), questions) as loop:
        try:
            await loop.wait_until_complete()
            for change in (
                partial(upgrade, tenant, images),
                partial(roll_out_embedder, tenant),
                partial(roll_back, tenant),
                partial(upgrade, tenant, images),
                partial(work_with_a_newer_definition, tenant),
                partial(refuse_an_older_definition, tenant),
            ):
                await asyncio.to_thread(change)
                await loop.wait_for_answers(ANSWERS)
        finally:
            faults = loop.faults()
            figures["helm_upgrade_recalls"] = len(loop.answers)
            figures["helm_upgrade_recall_errors"] = len(faults)
        done = descriptions(tenant.cluster)
        figures["rollback"] = any(entry.startswith("Rollback to 1") for entry in done)
        await asyncio.to_thread(uninstall, tenant.cluster)
        since = await loop.wait_for_answers(ANSWERS)
        assert [answer.error for answer in since if answer.error] == []
    assert await asyncio.to_thread(tenant.sql, CONTENTS) == before
    assert faults == []
    assert figures["rollback"], done


def test_what_was_uninstalled_has_left_nothing_behind(cluster: Cluster) -> None:
    """No role, no Deployment, no service account and no definition of ours."""
    ours = "-lapp.kubernetes.io/part-of=memory-index"
    assert cluster.kubectl("get", "clusterroles,clusterrolebindings", ours, "-o", "name") == ""
    assert cluster.kubectl(*NAMED, "get", "deployments,serviceaccounts,roles", ours, "-o", "name") == ""
    assert cluster.kubectl("get", "crd", DEFINITION, "--ignore-not-found", "-o", "name") == ""
