"""Installs definitions in the cluster that all modules share, for the time of one module."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from devcluster.cluster import Cluster
from devcluster.errors import CommandError
from devcluster.install import CHART
from tests.delivery.definitions import Definition
from tests.support.waiting import eventually

OUR_DEFINITION = (CHART / "crds" / "memoryindexes.yaml").read_text(encoding="utf-8")


@contextmanager
def definitions(cluster: Cluster, wanted: Sequence[Definition], *, ours: bool = False) -> Iterator[None]:
    """Install definitions of other projects, and with `ours` the MemoryIndex, until the block ends."""
    texts = [*(definition.text() for definition in wanted), *([OUR_DEFINITION] if ours else [])]
    try:
        for text in texts:
            cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=text)
            eventually(partial(_established, cluster, text), bool, what="the definitions established")
        yield
    finally:
        for text in texts:
            cluster.kubectl("delete", "-f", "-", "--ignore-not-found", "--timeout=240s", input=text)


def _established(cluster: Cluster, text: str) -> bool:
    """Return whether definitions are established; kubectl fails while one of them has no conditions at all yet."""
    try:
        cluster.kubectl("wait", "--for=condition=Established", "-f", "-", "--timeout=5s", input=text)
    except CommandError:
        return False
    return True
