"""Whether the operator of the cluster is settled: it goes on looking at its objects, and writes nothing."""

import re
from collections.abc import Callable

from devcluster.cluster import Cluster
from devcluster.install import OPERATOR_NAMESPACE
from tests.support.waiting import eventually

RESYNC = "operator.resyncSeconds=5"  # so that several reconciles take seconds, not minutes
_RECONCILES = 4
_SECONDS = 120.0


def _metric(cluster: Cluster, name: str) -> float:
    """Return the sum of a metric of the one operator pod that runs, over all labels."""
    listed = cluster.read(
        f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/pods?labelSelector=app.kubernetes.io/component=operator"
    )["items"]
    (pod,) = [item["metadata"]["name"] for item in listed if "deletionTimestamp" not in item["metadata"]]
    page = cluster.kubectl("get", "--raw", f"/api/v1/namespaces/{OPERATOR_NAMESPACE}/pods/{pod}:9090/proxy/metrics")
    found = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", page, flags=re.MULTILINE)
    return sum(map(float, found))


def assert_settled(cluster: Cluster, observe: Callable[[], object]) -> None:
    """Wait until several reconciles in a row have written nothing; what `observe` returns must not change in them.

    The first reconciles after a change may still write, so the count begins anew until one run of them is silent.

    Raises:
        AssertionError: the operator still writes after two minutes, or what is observed changes without its writes.
    """

    def silent() -> bool:
        writes, seen = _metric(cluster, "memory_operator_api_writes_total"), observe()
        begun = _metric(cluster, "memory_operator_reconcile_seconds_count")
        eventually(
            lambda: _metric(cluster, "memory_operator_reconcile_seconds_count"),
            lambda count: count >= begun + _RECONCILES,
            what=f"{_RECONCILES} more reconciles",
            seconds=_SECONDS,
        )
        return _metric(cluster, "memory_operator_api_writes_total") == writes and observe() == seen

    eventually(silent, bool, what="reconciles that write nothing", seconds=_SECONDS)
