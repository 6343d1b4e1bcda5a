"""Watch Kubernetes objects: every watch event schedules a reconcile of the MemoryIndex objects that it concerns.

kopf is used for its watch streams alone, through stateless `on.event` handlers: so it writes nothing, neither
annotations nor finalizers nor Events. Secrets are not watched, because that would put every Secret of the namespaces
into memory; a changed Secret is noticed at the next reconcile. The Kubernetes API server filters the watches of Jobs,
Deployments and pods by label; this module ignores events of Clusters that no MemoryIndex names.
"""

from dataclasses import dataclass, field
from typing import Any

import kopf

from memory_operator.api.spec import ANNOTATION_RECONCILE_AT
from memory_operator.clients.connection import relaxed_connection
from memory_operator.controller.queue import Key, WorkQueue
from memory_operator.resources.common import LABEL_INSTANCE, LABEL_MANAGED_BY, MANAGER

DEBOUNCE_SECONDS = 0.1
MEMORY_INDEX = ("memory-index.dev", "memoryindexes")
CHILDREN = (("batch", "jobs"), ("apps", "deployments"), ("", "pods"))
CNPG_GROUP = "postgresql.cnpg.io"


@dataclass
class EventRouter:
    """Schedules the MemoryIndex objects that a watch event concerns; remembers the Cluster that each of them names."""

    queue: WorkQueue
    _clusters: dict[Key, Key] = field(default_factory=dict)
    _versions: dict[Key, tuple[Any, ...]] = field(default_factory=dict)

    def index_event(self, kind: str | None, body: Any) -> None:  # noqa: ANN401 - kopf's body is an untyped mapping
        """Schedule the MemoryIndex of this event, without delay if a user requested it. Ignore changes of status."""
        meta = body["metadata"]
        key = (meta["namespace"], meta["name"])
        if kind == "DELETED":
            self._clusters.pop(key, None)
            self._versions.pop(key, None)
            self.queue.schedule(key)
            return
        cluster = ((body.get("spec") or {}).get("database") or {}).get("cluster") or {}
        if cluster.get("name"):
            self._clusters[key] = (cluster.get("namespace") or key[0], cluster["name"])
        finalizers = tuple(meta.get("finalizers") or ())
        requested = (meta.get("annotations") or {}).get(ANNOTATION_RECONCILE_AT)
        version = (meta.get("uid"), meta.get("generation"), meta.get("deletionTimestamp"), finalizers, requested)
        last = self._versions.get(key)
        if last != version:
            self._versions[key] = version
            asked_for = requested is not None and last is not None and last[-1] != requested
            self.queue.schedule(key, 0.0 if asked_for else DEBOUNCE_SECONDS)

    def child_event(self, body: Any) -> None:  # noqa: ANN401 - kopf's body is an untyped mapping
        """Schedule the MemoryIndex that owns the Job, Deployment or pod of this event."""
        meta = body["metadata"]
        name = (meta.get("labels") or {}).get(LABEL_INSTANCE)
        if name and (meta["namespace"], name) in self._versions:
            self.queue.schedule((meta["namespace"], name), DEBOUNCE_SECONDS)

    def cluster_event(self, namespace: str, name: str) -> None:
        """Schedule every MemoryIndex that names this CloudNativePG Cluster."""
        for key, cluster in self._clusters.items():
            if cluster == (namespace, name):
                self.queue.schedule(key, DEBOUNCE_SECONDS)


def build_registry(router: EventRouter, *, namespaced: bool) -> kopf.OperatorRegistry:
    """Return the registry of all kopf handlers. A `namespaced` operator may not watch CloudNativePG's objects."""
    found = kopf.OperatorRegistry()
    group, plural = MEMORY_INDEX

    @kopf.on.login(registry=found)
    def login(**context: Any) -> kopf.ConnectionInfo | None:  # noqa: ANN401 - handlers take whatever kopf gives
        return relaxed_connection(kopf.login_with_service_account(**context) or kopf.login_with_kubeconfig(**context))

    @kopf.on.event(group, plural, registry=found)
    async def memory_index(event: Any, body: Any, **_: Any) -> None:  # noqa: ANN401 - handlers take whatever kopf gives
        router.index_event(event["type"], body)

    for child_group, child_plural in CHILDREN:

        @kopf.on.event(child_group, "v1", child_plural, registry=found, id=child_plural)
        async def child(body: Any, **_: Any) -> None:  # noqa: ANN401 - handlers take whatever kopf gives
            router.child_event(body)

    if not namespaced:
        _watch_cnpg(found, router)
    return found


def _watch_cnpg(found: kopf.OperatorRegistry, router: EventRouter) -> None:
    @kopf.on.event(CNPG_GROUP, "clusters", registry=found)
    async def cluster(namespace: str | None, name: str | None, **_: Any) -> None:  # noqa: ANN401 - as above
        router.cluster_event(namespace or "", name or "")

    @kopf.on.event(CNPG_GROUP, "databases", registry=found)
    async def database(namespace: str | None, spec: Any, **_: Any) -> None:  # noqa: ANN401 - as above
        router.cluster_event(namespace or "", (spec.get("cluster") or {}).get("name", ""))


def kopf_settings(*, namespaced: bool) -> kopf.OperatorSettings:
    """Return the settings with which kopf only watches and never writes."""
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.peering.standalone = True
    chosen.scanning.disabled = namespaced  # without cluster-wide permissions there is nothing to scan
    for group, plural in CHILDREN:
        chosen.watching.label_selectors[group, plural] = f"{LABEL_MANAGED_BY}={MANAGER}"
    chosen.networking.request_timeout = 30.0
    return chosen
