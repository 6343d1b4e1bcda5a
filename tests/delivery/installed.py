"""Installs definitions in the cluster that all modules share, for the time of one module."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from devcluster.cluster import Cluster
from devcluster.install import CHART
from tests.delivery.definitions import Definition

OUR_DEFINITION = (CHART / "crds" / "memoryindexes.yaml").read_text(encoding="utf-8")


@contextmanager
def definitions(cluster: Cluster, wanted: Sequence[Definition], *, ours: bool = False) -> Iterator[None]:
    """Install definitions of other projects, and with `ours` the MemoryIndex, until the block ends."""
    texts = [*(definition.text() for definition in wanted), *([OUR_DEFINITION] if ours else [])]
    try:
        for text in texts:
            cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=text)
            cluster.kubectl("wait", "--for=condition=Established", "-f", "-", "--timeout=60s", input=text)
        yield
    finally:
        for text in texts:
            cluster.kubectl("delete", "-f", "-", "--ignore-not-found", "--timeout=60s", input=text)
