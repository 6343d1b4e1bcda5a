"""Cache the watched objects, so that a reconcile of an unchanged object does not request them.

The objects are in kopf's indexes, which are filled before the first event is handled and are then kept current by
watches. This module adds what an index lacks:

- An index lags behind the operator's own writes. Therefore an object that a write has returned is used until the index
  contains this version of the object or a newer one.
- An index misses a deletion if its watch is interrupted for so long that Kubernetes no longer reports the deletion.
  Therefore the objects of an index are regularly compared with a list from the API server.
- An index does not show whether a missing object does not exist or is not watched. Where both are possible, the
  answer is None, and the caller requests the object.

An object is cached as JSON without the fields that nobody reads, which takes a tenth of the memory of dictionaries.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic

from memory_operator.api.spec import Manifest
from memory_operator.resources.common import LABEL_INSTANCE

CHILDREN = ("Deployment", "Service", "NetworkPolicy", "PodDisruptionBudget", "PersistentVolumeClaim")
WATCHED = ("MemoryIndex", *CHILDREN, "Job", "Pod")
WATCHED_OF_CNPG = ("Cluster", "Database")
LATEST_SECONDS = 30.0  # after a write; an object of it that no watch has shown by then was deleted
FORGOTTEN_SECONDS = 600.0

Owner = tuple[str, str]  # the namespace, and the name of the MemoryIndex, or what stands for it


@dataclass(frozen=True)
class Entry:
    """One watched object. `version` is its resourceVersion, which grows with each change; `content` is its JSON."""

    name: str
    uid: str
    version: int
    content: bytes


def owner_of(kind: str, manifest: Manifest) -> Owner:
    """Return the key under which an object is cached: its namespace and the name of its MemoryIndex.

    A Cluster is cached under its own name instead, and a CloudNativePG Database object under its `database_key`.
    """
    meta = manifest["metadata"]
    if kind == "Database":
        spec = manifest.get("spec") or {}
        return meta["namespace"], database_key((spec.get("cluster") or {}).get("name", ""), spec.get("name", ""))
    if kind in {"MemoryIndex", "Cluster"}:
        return meta["namespace"], meta["name"]
    return meta["namespace"], (meta.get("labels") or {}).get(LABEL_INSTANCE, "")


def database_key(cluster: str, database: str) -> str:
    """Return the name under which a CloudNativePG Database object is cached: `<cluster>/<database>`."""
    return f"{cluster}/{database}"


def entry_of(kind: str, manifest: Manifest) -> Entry:
    """Return the cache entry of an object."""
    meta = {name: value for name, value in manifest["metadata"].items() if name != "managedFields"}
    kept = {**manifest, "metadata": meta}
    if kind == "Pod":
        kept.pop("spec", None)
    return Entry(meta["name"], meta.get("uid", ""), _version(meta), json.dumps(kept, separators=(",", ":")).encode())


Index = Mapping[Owner, Iterable[Entry]]


@dataclass
class _Scope:
    """The indexes by kind, for one namespace or for all. `deleted` maps a kind to the uids of objects to ignore."""

    indexes: Mapping[str, Index]
    deleted: dict[str, frozenset[str]] = field(default_factory=dict)


@dataclass
class ObjectCache:
    """Finds watched objects in kopf's indexes and among the results of the operator's own writes."""

    clock: Callable[[], float] = monotonic
    _scopes: dict[str, _Scope] = field(default_factory=dict)
    _written: dict[tuple[str, Owner], dict[str, tuple[Entry, float]]] = field(default_factory=dict)

    def use(self, namespaces: Collection[str], indexes: Mapping[str, Index]) -> None:
        """Use these indexes, by kind, for these namespaces, or for every namespace if `namespaces` is empty."""
        for namespace in namespaces or ("",):
            self._scopes[namespace] = _Scope(indexes)

    def find(self, kind: str, owner: Owner) -> list[Manifest] | None:
        """Return the cached objects of a kind and an owner, or None if the API server must be asked."""
        index, gone = self._index(kind, owner[0])
        if index is None:
            return None
        found = {entry.name: entry for entry in index.get(owner, ()) if entry.uid not in gone}
        found.update(self._unseen(kind, owner, found))
        return [json.loads(entry.content) for entry in found.values()]

    def every(self, kind: str, namespace: str) -> list[Manifest] | None:
        """Return the cached objects of a kind in a namespace, or in all namespaces if `namespace` is empty.

        The answer is None if the API server must be asked for the objects.
        """
        index, _ = self._index(kind, namespace)
        if index is None:
            return None
        owners = [owner for owner in index if namespace in {"", owner[0]}]
        return [manifest for owner in owners for manifest in self.find(kind, owner) or ()]

    def remember(self, manifest: Manifest) -> None:
        """Keep an object that a write has returned, until the index contains this version or a newer one."""
        kind = manifest.get("kind", "")
        if kind in {*WATCHED, *WATCHED_OF_CNPG}:
            self._forget_older()
            entry, owner = entry_of(kind, manifest), owner_of(kind, manifest)
            self._written.setdefault((kind, owner), {})[entry.name] = (entry, self.clock())

    def scopes(self) -> list[tuple[str, str]]:
        """Return each watched kind with its namespace, which is empty if all namespaces are watched."""
        return [(kind, namespace) for namespace, scope in self._scopes.items() for kind in scope.indexes]

    def uids(self, kind: str, namespace: str) -> frozenset[str]:
        """Return the uids of the indexed objects of a kind in a namespace, or everywhere if `namespace` is empty."""
        index, _ = self._index(kind, namespace)
        owners = [owner for owner in index or () if namespace in {"", owner[0]}]
        return frozenset(entry.uid for owner in owners for entry in (index or {})[owner])

    def ignore(self, kind: str, namespace: str, deleted: frozenset[str]) -> None:
        """Leave the objects with these uids out of all answers about this kind and namespace."""
        self._scopes[namespace].deleted[kind] = deleted

    def _index(self, kind: str, namespace: str) -> tuple[Index | None, frozenset[str]]:
        scope = self._scopes.get(namespace) or self._scopes.get("")
        index = scope.indexes.get(kind) if scope else None
        if scope is None or index is None or (kind in WATCHED_OF_CNPG and not scope.indexes["Cluster"]):
            return None, frozenset()  # without any Cluster, CloudNativePG may not be installed
        return index, scope.deleted.get(kind, frozenset())

    def _forget_older(self) -> None:
        """Forget old writes that no lookup has removed, because the MemoryIndex of their objects is gone."""
        oldest = self.clock() - FORGOTTEN_SECONDS
        for key, written in list(self._written.items()):
            if all(at < oldest for _, at in written.values()):
                del self._written[key]

    def _unseen(self, kind: str, owner: Owner, found: Mapping[str, Entry]) -> dict[str, Entry]:
        """Return the operator's own writes that the index does not contain yet; forget this owner's other writes."""
        written = self._written.get((kind, owner), {})
        for name, (entry, at) in list(written.items()):
            seen = found.get(name)
            deleted = seen is None and (kind == "MemoryIndex" or self.clock() - at > LATEST_SECONDS)
            if deleted or (seen is not None and seen.version >= entry.version):
                del written[name]
        if not written:
            self._written.pop((kind, owner), None)
        return {name: entry for name, (entry, _) in written.items()}


def _version(meta: Manifest) -> int:
    version = str(meta.get("resourceVersion", ""))
    return int(version) if version.isdigit() else 0
