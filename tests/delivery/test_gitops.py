"""Flux, Argo CD and kubectl as they meet the operator.

Their manifests and health rules, server-side apply in turn, and the plugin that shows where an object stands.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import devcluster
from devcluster.cluster import Cluster
from devcluster.install import OPERATOR_NAMESPACE, install_operator
from devcluster.postgres import create_postgres, database_object
from devcluster.settings import REPOSITORY
from tests.delivery.definitions import ARGO_CD, FLUX
from tests.delivery.installed import definitions
from tests.delivery.settling import RESYNC, assert_settled
from tests.support.cluster.memories import rows
from tests.support.cluster.tenants import INDEX, Tenant, manifest
from tests.support.gitops.health import argo_cd, flux
from tests.support.gitops.kstatus import Kstatus

SHIPPED = REPOSITORY / "docs" / "gitops"
MANAGERS = ("kustomize-controller", "argocd-controller")
ROUNDS = 3
PLUGIN = REPOSITORY / "tools" / "krew"


def shipped(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((SHIPPED / name).read_text(encoding="utf-8")))


def test_the_definitions_of_flux_and_argo_cd_accept_the_shipped_manifests(cluster: Cluster) -> None:
    """All but the HelmRelease, whose definition the module proxy does not serve."""
    objects = [*shipped("flux.yaml"), *shipped("argocd.yaml")]
    checked = [body for body in objects if body["kind"] not in {"HelmRelease", "Namespace"}]
    assert [body["kind"] for body in checked] == [
        "OCIRepository",
        "GitRepository",
        "Kustomization",
        "Application",
        "Application",
    ]
    with definitions(cluster, (*FLUX, *ARGO_CD)):
        for body in checked:
            placed = {**body, "metadata": {**body["metadata"], "namespace": "default"}}
            command = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-")
            cluster.kubectl(*command, input=json.dumps(placed))


@pytest.fixture(scope="module")
def tenant(cluster: Cluster) -> Iterator[Tenant]:
    """The operator, and a database with memories; both are removed at the end, the definition, too."""
    images = devcluster.load_images(cluster)
    install_operator(cluster, operator_image=images.operator, embedder_image=images.embedder, settings=[RESYNC])
    postgres = create_postgres(cluster, namespace="gitops-dbaas", name="pg-gitops", storage="1Gi")
    tenant = Tenant(postgres, "gitops", images.operator)
    tenant.create()
    tenant.store(rows(20))
    cluster.apply(database_object(postgres, tenant.database))
    yield tenant
    tenant.kubectl("delete", "memoryindex", "--all", "--wait", "--timeout=240s")
    cluster.helm("uninstall", "memory-index", f"--namespace={OPERATOR_NAMESPACE}", "--wait")
    cluster.kubectl("delete", "crd", "memoryindexes.memory-index.dev", "--wait")
    for namespace in (tenant.name, postgres.namespace):
        cluster.kubectl("delete", "namespace", namespace, "--wait", "--timeout=300s")


def applied(tenant: Tenant, manager: str, body: dict[str, Any], *, force: bool = False) -> dict[str, Any]:
    """Apply an object as this field manager, and return the object that the API server answers with."""
    forced = ["--force-conflicts"] if force else []
    command = ("apply", "--server-side", f"--field-manager={manager}", *forced, "-f", "-", "-o", "json")
    return dict(json.loads(tenant.kubectl(*command, input=json.dumps(body))))


def version(tenant: Tenant) -> str:
    return str(tenant.index()["metadata"]["resourceVersion"])


def test_two_managers_apply_a_memory_index_in_turn_with_the_operator_and_all_settle(
    tenant: Tenant, figures: dict[str, Any]
) -> None:
    """Without conflicts; the finalizer and the status of the operator stay, and nobody's apply changes anything."""
    wanted = manifest(tenant, {"deletionPolicy": "Delete"})
    first = applied(tenant, MANAGERS[0], wanted)
    assert flux({"status": {}, **first}) is Kstatus.IN_PROGRESS
    assert argo_cd({"status": {}, **first})["status"] == "Progressing"
    applied(tenant, MANAGERS[1], wanted)
    tenant.wait_ready()
    assert_settled(tenant.cluster, lambda: version(tenant))
    settled = version(tenant)
    for _ in range(ROUNDS):
        for manager in MANAGERS:
            answer = applied(tenant, manager, wanted)
            assert answer["metadata"]["resourceVersion"] == settled, manager
        assert_settled(tenant.cluster, lambda: version(tenant))
        assert version(tenant) == settled
    live = tenant.index()
    assert live["metadata"]["finalizers"]
    assert flux(live) is Kstatus.CURRENT
    assert argo_cd(live)["status"] == "Healthy"
    figures["server_side_apply_settled"] = True


def test_kubectl_runs_the_plugin_by_its_name(tenant: Tenant) -> None:
    """`kubectl memory-index NAME` shows where the object stands, with kubectl's own kubeconfig."""
    folders = [str(PLUGIN), str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = {**tenant.cluster.shell_environment(), "PATH": os.pathsep.join(folders)}
    command = tenant.cluster.kubectl_command("memory-index", INDEX, "--namespace", tenant.name)
    # kubectl accepts no flag of its own before a plugin's name.
    command = [part for part in command if not part.startswith("--kubeconfig")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{tenant.name}/{INDEX}" in done.stdout


def test_another_manager_may_label_our_objects_and_both_settle(tenant: Tenant) -> None:
    """A policy engine that labels Deployments in turn with the operator keeps its label, and neither repeats itself."""
    deployment = f"{INDEX}-embedder"
    labelled = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": deployment, "namespace": tenant.name, "labels": {"policy.example/checked": "yes"}},
    }

    def seen() -> str:
        live = json.loads(tenant.kubectl("get", "deployment", deployment, "-o", "json"))
        assert live["metadata"]["labels"]["policy.example/checked"] == "yes"
        return str(live["metadata"]["resourceVersion"])

    applied(tenant, "policy-engine", labelled)
    assert_settled(tenant.cluster, seen)
    before = seen()
    assert applied(tenant, "policy-engine", labelled)["metadata"]["resourceVersion"] == before
    assert_settled(tenant.cluster, seen)
    assert seen() == before


def test_a_field_of_ours_that_another_manager_took_is_taken_back_once(tenant: Tenant) -> None:
    """Even one that is taken with force; afterwards the operator is settled, and the object Ready."""
    deployment = f"{INDEX}-sync"
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": deployment, "namespace": tenant.name},
        "spec": {"replicas": 0},
    }
    applied(tenant, "somebody", body, force=True)
    tenant.wait_condition("Backfilled", "Complete", status="True")
    assert_settled(tenant.cluster, lambda: version(tenant))
    live = json.loads(tenant.kubectl("get", "deployment", deployment, "-o", "json"))
    assert live["spec"]["replicas"] == 1
