"""Installs CloudNativePG from its release manifest, and our operator from the chart of this checkout."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from devcluster.building.binaries import Binaries
from devcluster.cluster import Cluster
from devcluster.errors import DevclusterError
from devcluster.progress import Reporter, SilentReporter
from devcluster.retrying import until
from devcluster.settings import REPOSITORY, Settings

CNPG_NAMESPACE = "cnpg-system"
OPERATOR_NAMESPACE = "memory-index-system"
CHART = REPOSITORY / "charts" / "memory-index"
_RELEASE, _TIMEOUT = "memory-index", "120s"
_DEPLOYMENT = "cnpg-controller-manager"


def install_cnpg(cluster: Cluster, *, settings: Settings | None = None, reporter: Reporter | None = None) -> None:
    """Install CloudNativePG and wait until its webhook answers."""
    reporter, built = reporter or SilentReporter(), Binaries(settings or Settings())
    built.ensure(reporter, ("cnpg",))
    manifest = adapt_manifest((built.directory("cnpg") / "cnpg.yaml").read_text(encoding="utf-8"))
    with reporter.step("Install CloudNativePG"):
        cluster.await_image("cnpg")
        cluster.kubectl("apply", "--server-side", "--force-conflicts", "--filename=-", input=manifest)
        cluster.kubectl("-n", CNPG_NAMESPACE, "rollout", "status", f"deployment/{_DEPLOYMENT}", "--timeout=300s")
        # The rollout ends before the webhook's address has reached kube-proxy; a dry run tells when it has.
        until("CloudNativePG's webhook answers", lambda: _webhook_answers(cluster), seconds=60)


def adapt_manifest(manifest: str) -> str:
    """Adapt CloudNativePG's release manifest to clusters that pull no images and to machines with few processors.

    Only the Deployment is parsed, because parsing the megabyte of custom resource definitions takes seconds.
    """
    documents = re.split(r"^---$", manifest, flags=re.MULTILINE)
    return "---".join(
        _adapt_deployment(text) if re.search(r"^kind: Deployment$", text, flags=re.MULTILINE) else text
        for text in documents
    )


def _adapt_deployment(text: str) -> str:
    deployment = yaml.safe_load(text)
    for container in deployment["spec"]["template"]["spec"]["containers"]:
        container["imagePullPolicy"] = "IfNotPresent"
        # A tenth of a processor makes the start take a minute.
        container.get("resources", {}).get("limits", {}).pop("cpu", None)
    return f"\n{yaml.safe_dump(deployment, sort_keys=False)}"


def _webhook_answers(cluster: Cluster) -> bool:
    probe: dict[str, Any] = {
        "apiVersion": "postgresql.cnpg.io/v1",
        "kind": "Cluster",
        "metadata": {"name": "webhook-probe", "namespace": CNPG_NAMESPACE},
        "spec": {"instances": 1, "storage": {"size": "1Gi"}},
    }
    try:
        cluster.kubectl("create", "--dry-run=server", "--filename=-", input=yaml.safe_dump(probe))
    except DevclusterError:
        return False
    return True


def install_operator(
    cluster: Cluster, *, operator_image: str, embedder_image: str, chart: Path = CHART, settings: Sequence[str] = ()
) -> None:
    """Install or upgrade the Helm release of our operator, and wait until the operator is ready.

    `settings` are values of the chart in the syntax of helm's `--set`.
    """
    # helm never updates a definition that exists, so a cluster that was kept would go on with an older checkout's
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(chart / "crds"))
    cluster.helm(
        "upgrade",
        "--install",
        _RELEASE,
        str(chart),
        f"--namespace={OPERATOR_NAMESPACE}",
        "--create-namespace",
        *_image_values("operator.image", operator_image),
        *_image_values("embedder.image", embedder_image),
        *(f"--set={setting}" for setting in settings),
        "--wait",
        f"--timeout={_TIMEOUT}",
    )


def _image_values(path: str, reference: str) -> tuple[str, ...]:
    repository, _, tag = reference.rpartition(":")
    return (f"--set-string={path}.repository={repository}", f"--set-string={path}.tag={tag}")
