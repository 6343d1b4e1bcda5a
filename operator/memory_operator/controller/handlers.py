"""Watches: every event only wakes the object that it concerns.

kopf is used for its watch streams alone, through stateless `on.event` handlers: so it writes nothing, neither
annotations nor finalizers nor Events. Secrets are not watched, because that would put every Secret of the
namespaces into memory; a changed one is noticed at the next look. Watches are filtered by our label at the server,
those of CloudNativePG by the clusters that objects name.
"""

from dataclasses import dataclass, field
from typing import Any

import kopf

from memory_operator.clients.tls import connection
from memory_operator.controller.queue import Key, WorkQueue
from memory_operator.resources.common import LABEL_INSTANCE, LABEL_MANAGED_BY, MANAGER

DEBOUNCE_SECONDS = 0.1
OWN = ("memory-index.dev", "memoryindexes")
CHILDREN = (("batch", "jobs"), ("apps", "deployments"), ("", "pods"))
CNPG_GROUP = "postgresql.cnpg.io"


@dataclass
class Wakers:
    """What is known of objects from their events: enough to tell whom another object's event concerns."""

    queue: WorkQueue
    _clusters: dict[Key, Key] = field(default_factory=dict)
    _seen: dict[Key, tuple[Any, ...]] = field(default_factory=dict)

    def own(self, kind: str | None, body: Any) -> None:  # noqa: ANN401 - kopf's body is an untyped mapping
        """An event of a MemoryIndex. Our own status writes are told from news by what only others change."""
        meta = body["metadata"]
        key = (meta["namespace"], meta["name"])
        if kind == "DELETED":
            self._clusters.pop(key, None)
            self._seen.pop(key, None)
            self.queue.wake(key)
            return
        cluster = ((body.get("spec") or {}).get("database") or {}).get("cluster") or {}
        if cluster.get("name"):
            self._clusters[key] = (cluster.get("namespace") or key[0], cluster["name"])
        mark = (
            meta.get("uid"),
            meta.get("generation"),
            meta.get("deletionTimestamp"),
            tuple(meta.get("finalizers") or ()),
        )
        if self._seen.get(key) != mark:
            self._seen[key] = mark
            self.queue.wake(key, DEBOUNCE_SECONDS)

    def child(self, body: Any) -> None:  # noqa: ANN401 - kopf's body is an untyped mapping
        """An event of something that we made."""
        meta = body["metadata"]
        name = (meta.get("labels") or {}).get(LABEL_INSTANCE)
        if name and (meta["namespace"], name) in self._seen:
            self.queue.wake((meta["namespace"], name), DEBOUNCE_SECONDS)

    def cluster(self, namespace: str, name: str) -> None:
        """An event of a CloudNativePG Cluster, or of a Database object that names it."""
        for key, cluster in self._clusters.items():
            if cluster == (namespace, name):
                self.queue.wake(key, DEBOUNCE_SECONDS)


def registry(wakers: Wakers, *, namespaced: bool) -> kopf.OperatorRegistry:
    """All handlers. CloudNativePG's objects are elsewhere, so an operator bound to namespaces may not watch them."""
    found = kopf.OperatorRegistry()
    group, plural = OWN

    @kopf.on.login(registry=found)
    def login(**context: Any) -> kopf.ConnectionInfo | None:  # noqa: ANN401 - handlers take whatever kopf gives
        return connection(kopf.login_with_service_account(**context) or kopf.login_with_kubeconfig(**context))

    @kopf.on.event(group, plural, registry=found)
    async def own(event: Any, body: Any, **_: Any) -> None:  # noqa: ANN401 - handlers take whatever kopf gives
        wakers.own(event["type"], body)

    for child_group, child_plural in CHILDREN:

        @kopf.on.event(child_group, "v1", child_plural, registry=found, id=child_plural)
        async def child(body: Any, **_: Any) -> None:  # noqa: ANN401 - handlers take whatever kopf gives
            wakers.child(body)

    if not namespaced:
        _watch_cnpg(found, wakers)
    return found


def _watch_cnpg(found: kopf.OperatorRegistry, wakers: Wakers) -> None:
    @kopf.on.event(CNPG_GROUP, "clusters", registry=found)
    async def cluster(namespace: str | None, name: str | None, **_: Any) -> None:  # noqa: ANN401 - as above
        wakers.cluster(namespace or "", name or "")

    @kopf.on.event(CNPG_GROUP, "databases", registry=found)
    async def database(namespace: str | None, spec: Any, **_: Any) -> None:  # noqa: ANN401 - as above
        wakers.cluster(namespace or "", (spec.get("cluster") or {}).get("name", ""))


def settings(*, namespaced: bool) -> kopf.OperatorSettings:
    """Kopf as a watcher that writes nothing."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.peering.standalone = True
    chosen.scanning.disabled = namespaced  # without cluster-wide permissions there is nothing to scan
    for group, plural in CHILDREN:
        chosen.watching.label_selectors[group, plural] = f"{LABEL_MANAGED_BY}={MANAGER}"
    chosen.networking.request_timeout = 30.0
    return chosen
