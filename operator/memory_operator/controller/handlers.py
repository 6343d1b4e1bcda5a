"""Watch Kubernetes objects: every watch event schedules a reconcile of the MemoryIndex objects that it concerns.

kopf is used only for its watch streams and its indexes, with stateless `on.event` handlers. Therefore kopf writes no
annotations, finalizers or Events. Secrets are not watched, because every Secret of the namespaces would then be in
memory; a changed Secret is noticed at the next reconcile. The Kubernetes API server filters the watches of the
operator's own objects by label. This module ignores events of Clusters that no MemoryIndex names.

A failed watch is always retried. With kopf's default, the whole process would end after a minute without the API
server, or when one of several namespaces is deleted together with its Role.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from itertools import chain, repeat
from time import monotonic
from typing import Any

import kopf

from memory_operator.api.conditions import ConditionType, by_type
from memory_operator.api.spec import ANNOTATION_ALLOWED_NAMESPACES, ANNOTATION_RECONCILE_AT, mapping_in
from memory_operator.clients.connection import relaxed_connection
from memory_operator.clients.kube import KINDS
from memory_operator.controller.cache import ObjectCache
from memory_operator.controller.entries import Entry, Owner
from memory_operator.controller.kopf_storage import NoDiffs, NoProgress
from memory_operator.controller.objects import watched_labels
from memory_operator.controller.queue import Key, WorkQueue
from memory_operator.resources.common import LABEL_INSTANCE

DEBOUNCE_SECONDS = 0.1
REPEAT_SECONDS = 600.0
_WATCH_LOG = "kopf._cogs.clients.watching"  # the log of kopf's own that names each failed attempt
_QUEUE_LOG = "kopf._core.reactor.queueing"  # the one that warns of all objects whose events were just handled


@dataclass
class EventRouter:
    """Schedules the MemoryIndex objects that a watch event concerns; remembers the Cluster of each MemoryIndex."""

    queue: WorkQueue
    _clusters: dict[Key, Key] = field(default_factory=dict)
    _versions: dict[Key, tuple[int, int]] = field(default_factory=dict)

    def index_event(self, kind: str | None, body: Any) -> None:  # noqa: ANN401 - kopf's body is an untyped mapping
        """Schedule the MemoryIndex of an event, without delay if a user requested a reconcile.

        An event that changes nothing but the status is ignored.
        """
        meta = body["metadata"]
        key = (meta["namespace"], meta["name"])
        if kind == "DELETED":
            self._clusters.pop(key, None)
            self._versions.pop(key, None)
            self.queue.schedule(key, urgent=True)
            return
        cluster = mapping_in(body, "spec", "database", "cluster")
        if cluster.get("name"):
            self._clusters[key] = (cluster.get("namespace") or key[0], cluster["name"])
        finalizers = tuple(meta.get("finalizers") or ())
        annotations = meta.get("annotations") or {}
        state = (meta.get("uid"), meta.get("generation"), meta.get("deletionTimestamp"), finalizers)
        requested = annotations.get(ANNOTATION_RECONCILE_AT)
        # Hashes take little memory, however long the annotations are that an author has written.
        version = (hash((*state, annotations.get(ANNOTATION_ALLOWED_NAMESPACES))), hash(requested))
        last = self._versions.get(key)
        if last != version:
            self._versions[key] = version
            asked_for = requested is not None and last is not None and last[-1] != version[-1]
            # An object of the first list is no edit: all of them are listed at a start.
            listed = kind is None
            self.queue.schedule(
                key, 0.0 if asked_for else DEBOUNCE_SECONDS, urgent=not listed, quick=listed and _has_answered(body)
            )

    def child_event(self, body: Any) -> None:  # noqa: ANN401 - kopf's body is an untyped mapping
        """Schedule the MemoryIndex to which the object of this event belongs."""
        meta = body["metadata"]
        name = (meta.get("labels") or {}).get(LABEL_INSTANCE)
        if name and (meta["namespace"], name) in self._versions:
            self.queue.schedule((meta["namespace"], name), DEBOUNCE_SECONDS, urgent=True)

    def cluster_event(self, namespace: str, name: str) -> None:
        """Schedule every MemoryIndex that names this CloudNativePG Cluster."""
        for key, cluster in self._clusters.items():
            if cluster == (namespace, name):
                self.queue.schedule(key, DEBOUNCE_SECONDS)

    def event(self, kind: str, change: str | None, body: Any) -> None:  # noqa: ANN401 - kopf's body is an untyped mapping
        """Schedule the MemoryIndex objects that an event of this kind of object concerns."""
        meta = body["metadata"]
        match kind:
            case "MemoryIndex":
                self.index_event(change, body)
            case "Cluster":
                self.cluster_event(meta["namespace"], meta["name"])
            case "Database":
                self.cluster_event(meta["namespace"], mapping_in(body, "spec", "cluster").get("name", ""))
            case "ReplicaSet":
                return  # a change of it comes with one of its Deployment or its pods
            case _:
                self.child_event(body)


def _has_answered(body: Any) -> bool:  # noqa: ANN401 - kopf's body is an untyped mapping
    """Return whether the status, as an earlier run of the operator wrote it, says that the database answered."""
    conditions = by_type((body.get("status") or {}).get("conditions") or ())
    return conditions.get(ConditionType.DATABASE_REACHABLE, {}).get("status") == "True"


def build_registry(
    router: EventRouter,
    cache: ObjectCache,
    *,
    watched: Collection[str],
    kept: Collection[str],
    namespaces: Collection[str],
    ended: asyncio.Event,
) -> kopf.OperatorRegistry:
    """Return the registry of kopf's handlers.

    Events of the `watched` kinds schedule reconciles. Objects of the `kept` kinds are indexed for the cache. `ended` is
    set when kopf ends, after a signal or because a watch has failed.
    """
    found = kopf.OperatorRegistry()

    @kopf.on.login(registry=found)
    def login(**context: Any) -> kopf.ConnectionInfo | None:  # noqa: ANN401 - handlers take whatever kopf gives
        return relaxed_connection(kopf.login_with_service_account(**context) or kopf.login_with_kubeconfig(**context))

    @kopf.on.startup(registry=found)
    def started(**context: Any) -> None:  # noqa: ANN401 - as above
        if kept:
            cache.use(namespaces, {kind: context[kind] for kind in kept})

    @kopf.on.cleanup(registry=found)
    async def ends(**_: Any) -> None:  # noqa: ANN401 - as above
        ended.set()

    for kind in watched:
        _watch(found, router, cache, kind)
    for kind in kept:
        _keep(found, cache, kind)
    return found


def _watch(found: kopf.OperatorRegistry, router: EventRouter, cache: ObjectCache, kind: str) -> None:
    @kopf.on.event(*KINDS[kind], registry=found, id=f"{kind} event")
    async def changed(event: Any, body: Any, **_: Any) -> None:  # noqa: ANN401 - as above
        if event["type"] == "DELETED":
            cache.forget(kind, body["metadata"]["namespace"], body["metadata"].get("uid", ""))
        router.event(kind, event["type"], body)


def _keep(found: kopf.OperatorRegistry, cache: ObjectCache, kind: str) -> None:
    @kopf.index(*KINDS[kind], registry=found, id=kind)
    async def entry(body: Any, **_: Any) -> dict[Owner, Entry]:  # noqa: ANN401 - as above
        return cache.admit(kind, body)


class _Backoffs:
    """The endless sequence of delays, in seconds, between the attempts of a kopf request."""

    def __iter__(self) -> Iterator[float]:
        return chain((1.0, 2.0, 4.0, 8.0, 16.0), repeat(30.0))


def kopf_settings(*, scan: bool) -> kopf.OperatorSettings:
    """Return settings with which kopf watches and writes nothing.

    With `scan` True, kopf also finds kinds that are installed later, which needs cluster-wide permissions.
    """
    chosen = kopf.OperatorSettings()
    chosen.posting.enabled = False
    chosen.peering.standalone = True
    chosen.persistence.diffbase_storage = NoDiffs()
    chosen.persistence.progress_storage = NoProgress()
    chosen.scanning.disabled = not scan
    for kind, (group, _, plural) in KINDS.items():
        labels = watched_labels(kind)
        if labels:
            chosen.watching.label_selectors[group, plural] = ",".join(f"{key}={labels[key]}" for key in labels)
    chosen.watching.chunk_size = 50  # so that a start with many or large objects holds only few of them at a time
    chosen.networking.request_timeout = 30.0
    chosen.networking.error_backoffs = _Backoffs()
    return chosen


def log_failures_once() -> None:
    """Keep kopf from logging each attempt of a failing request, and the names of all objects when it ends."""
    logging.getLogger(_WATCH_LOG).addFilter(RepeatedErrors())
    logging.getLogger(_QUEUE_LOG).setLevel(logging.ERROR)


class RepeatedErrors(logging.Filter):
    """A log filter that passes the same failure of a request once in ten minutes, however often it is tried again."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._logged: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is to be logged."""
        failure, moment = record.getMessage().partition(" failed;")[2], self._clock()
        if not failure:
            return True
        self._logged = {text: at for text, at in self._logged.items() if moment - at < REPEAT_SECONDS}
        if failure in self._logged:
            return False
        self._logged[failure] = moment
        return True
