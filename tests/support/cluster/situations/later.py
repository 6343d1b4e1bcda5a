"""Situations in which CloudNativePG is installed after the operator.

They need a cluster of their own, because all other situations need CloudNativePG from the start.
"""

import json
import time
from datetime import UTC, datetime
from typing import Any

import devcluster
from devcluster.cluster import Cluster
from devcluster.demo import objects
from devcluster.install import install_operator
from tests.support.cluster.conditions import condition
from tests.support.cluster.manifests import external_index
from tests.support.cluster.platform import PERMITTED
from tests.support.cluster.situations.situation import KEY, NAME, SECRET
from tests.support.gitops.kstatus import Kstatus, compute

_NAMESPACE = "sit-later"
_SOON_SECONDS, _LATE_SECONDS, _INSTALLED_SECONDS = 60.0, 180.0, 90.0


def observe_late_installation() -> list[dict[str, Any]]:
    """Start a cluster without CloudNativePG, and install CloudNativePG in it later.

    Return an entry for each of the three situations: its name, whether the MemoryIndex's status was as expected, and
    the status that was seen if it was not.
    """
    with devcluster.start(f"bench-operator-later-{datetime.now(UTC):%H%M%S}") as cluster:
        images = devcluster.load_images(cluster)
        install_operator(cluster, operator_image=images.operator, embedder_image=images.embedder, settings=PERMITTED)
        dsn = "postgresql://app:x@pg-rw.default.svc:5432/app"
        cluster.apply(objects.namespace(_NAMESPACE), objects.dsn_secret(_NAMESPACE, SECRET, KEY, dsn))
        database = {"cluster": {"name": "pg"}, "name": "app", "credentials": {"secretName": SECRET, "key": KEY}}
        cluster.apply(external_index(_NAMESPACE, NAME, database))
        missing = "CloudNativePGMissing"
        entries = [
            _entry(cluster, "CloudNativePG not installed yet", missing, Kstatus.IN_PROGRESS, _SOON_SECONDS),
            _entry(cluster, "CloudNativePG not installed for two minutes", missing, Kstatus.FAILED, _LATE_SECONDS),
        ]
        devcluster.install_cnpg(cluster)
        entries.append(
            _entry(cluster, "CloudNativePG installed later", "ClusterMissing", Kstatus.IN_PROGRESS, _INSTALLED_SECONDS)
        )
    return entries


def _entry(cluster: Cluster, name: str, reason: str, kstatus: Kstatus, seconds: float) -> dict[str, Any]:
    """Wait until Ready is False with the given reason and the object has the given kstatus, for `seconds` at most.

    Return the name of the situation, whether this happened, and what was seen last if it did not.
    """
    deadline = time.monotonic() + seconds
    while True:
        item = json.loads(cluster.kubectl("-n", _NAMESPACE, "get", "memoryindex", NAME, "-o", "json"))
        found = condition(item, "Ready")
        seen = (found.get("status"), found.get("reason"), compute(item))
        met = seen == ("False", reason, kstatus)
        if met or time.monotonic() > deadline:
            return {"situation": name, "key": "later", "made": "real", "met": met, "seen": "" if met else str(seen)}
        time.sleep(2)
