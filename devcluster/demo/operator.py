"""Installs the operator as a user does: with helm, the chart of this checkout, and the images built from it."""

from pathlib import Path

from devcluster.cluster import Cluster
from devcluster.settings import REPOSITORY

CHART = REPOSITORY / "charts" / "memory-index"
NAMESPACE = "memory-index-system"
RELEASE = "memory-index"
TIMEOUT = "120s"


def install_operator(cluster: Cluster, *, operator_image: str, embedder_image: str, chart: Path = CHART) -> None:
    """Install or upgrade the release and wait until the operator is ready."""
    # helm never touches a definition that is there already: a kept cluster would go on with that of an older checkout
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(chart / "crds"))
    cluster.helm(
        "upgrade",
        "--install",
        RELEASE,
        str(chart),
        f"--namespace={NAMESPACE}",
        "--create-namespace",
        *_image_values("operator.image", operator_image),
        *_image_values("embedder.image", embedder_image),
        "--wait",
        f"--timeout={TIMEOUT}",
    )


def _image_values(path: str, reference: str) -> tuple[str, ...]:
    repository, _, tag = reference.rpartition(":")
    return (f"--set-string={path}.repository={repository}", f"--set-string={path}.tag={tag}")
