"""A Kubernetes cluster with CloudNativePG, a Postgres cluster, and the operator of this checkout."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import devcluster
from devcluster.cluster import Cluster
from devcluster.install import OPERATOR_NAMESPACE, install_operator
from devcluster.postgres import Postgres
from devcluster.retrying import until
from tests.support.cluster.manifests import BROKEN_IMAGE, EMBEDDER_HOST, EMBEDDER_NAMESPACE, embedder_objects

OPERATOR = "memory-operator"
OPERATOR_PODS = "app.kubernetes.io/component=operator"
HOSTED_HOST = "api.voyageai.com"  # which nothing answers for in the cluster
PERMITTED = (f"permitted.externalHosts={{{EMBEDDER_HOST},{HOSTED_HOST}}}",)


@dataclass(frozen=True)
class Platform:
    """A Kubernetes cluster in which MemoryIndex objects can be created.

    `image` is the operator's image, and `embedder_image` that of embedders.
    """

    postgres: Postgres
    image: str
    embedder_image: str

    @property
    def cluster(self) -> Cluster:
        """The Kubernetes cluster."""
        return self.postgres.cluster

    def install(self, *settings: str) -> None:
        """Install the operator, or change its settings; each setting is a value of the chart, as `name=value`.

        Authors may use a broken image, the operator's image, and the embedder's, which contains a model file.
        """
        images = f"permitted.imagePrefixes={{{BROKEN_IMAGE},{self.image},{self.embedder_image}}}"
        install_operator(
            self.cluster,
            operator_image=self.image,
            embedder_image=self.embedder_image,
            settings=(images, *settings),
        )

    def system_identifier(self) -> str:
        """Return the system identifier of the Postgres server."""
        where = ("-n", self.postgres.namespace, "get", "clusters.postgresql.cnpg.io", self.postgres.name)
        return str(self.cluster.kubectl_json(*where)["status"]["systemID"])

    def start_embedder(self) -> None:
        """Start the embedder that all objects with an external embedder share, and wait until it is ready."""
        self.cluster.apply(*embedder_objects(self.embedder_image))
        self.cluster.kubectl(
            "-n", EMBEDDER_NAMESPACE, "rollout", "status", f"deployment/{EMBEDDER_NAMESPACE}", "--timeout=180s"
        )

    def scale_operator(self, replicas: int) -> None:
        """Set the number of the operator's pods, and wait until that many pods run.

        A pod that waits for the Lease also runs.
        """
        arguments = ("scale", f"deployment/{OPERATOR}", f"--replicas={replicas}")
        self.cluster.kubectl("-n", OPERATOR_NAMESPACE, *arguments)
        until(f"{replicas} operators run", lambda: len(self.operator_pods()) == replicas, seconds=120)

    def operator_pods(self) -> list[str]:
        """Return the names of the operator's pods that run and are not being deleted."""
        listed = self.cluster.read(f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/pods?labelSelector={OPERATOR_PODS}")[
            "items"
        ]
        running = [pod for pod in listed if pod["status"].get("phase") == "Running"]
        return [pod["metadata"]["name"] for pod in running if "deletionTimestamp" not in pod["metadata"]]


def create_platform(cluster: Cluster, *, settings: Sequence[str] = ()) -> Platform:
    """Install CloudNativePG, a Postgres cluster and the operator in an empty cluster."""
    devcluster.install_cnpg(cluster)
    images = devcluster.load_images(cluster)
    platform = Platform(devcluster.create_postgres(cluster, cpu="200m"), images.operator, images.embedder)
    platform.install(*settings)
    return platform


@contextmanager
def running_platform() -> Iterator[Platform]:
    """Create a cluster with Postgres, the operator and an embedder for the block, and delete it afterwards."""
    devcluster.prepare()
    with devcluster.start(f"bench-operator-{datetime.now(UTC):%H%M%S}") as cluster:
        platform = create_platform(cluster, settings=PERMITTED)
        platform.start_embedder()
        yield platform
