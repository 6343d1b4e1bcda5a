"""Keep the objects that are watched, so that a reconcile of an unchanged object reads nothing of them.

kopf's indexes hold them: they are filled before the first event is handled, and then follow the watches. Three things
an index does not know are added here. It is behind our own writes, so the object that a write returned counts until the
index has it, or a newer one. It never learns that an object was deleted while its watch was interrupted for so long
that Kubernetes had forgotten the deletion, so its objects are compared with a list from time to time. And it cannot
tell an object that does not exist from one that is not watched; where that is open, the answer is None: read it.

An object is kept as JSON, without the parts that nobody reads: this takes a tenth of the memory of dictionaries.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic

from memory_operator.api.spec import Manifest
from memory_operator.resources.common import LABEL_INSTANCE

WATCHED = ("MemoryIndex", "Deployment", "Service", "NetworkPolicy", "PodDisruptionBudget", "Job", "Pod")
WATCHED_OF_CNPG = ("Cluster", "Database")
LATEST_SECONDS = 30.0  # after a write; an object of it that no watch has shown by then was deleted
FORGOTTEN_SECONDS = 600.0

Owner = tuple[str, str]  # the namespace, and the name of the MemoryIndex, or what stands for it


@dataclass(frozen=True)
class Entry:
    """One watched object; `version` is its resourceVersion, which grows with each change."""

    name: str
    uid: str
    version: int
    content: bytes


def owner_of(kind: str, manifest: Manifest) -> Owner:
    """Return the key by which an object is looked for: most by their MemoryIndex, those of CloudNativePG by name."""
    meta = manifest["metadata"]
    if kind == "Database":
        spec = manifest.get("spec") or {}
        return meta["namespace"], database_key((spec.get("cluster") or {}).get("name", ""), spec.get("name", ""))
    if kind in {"MemoryIndex", "Cluster"}:
        return meta["namespace"], meta["name"]
    return meta["namespace"], (meta.get("labels") or {}).get(LABEL_INSTANCE, "")


def database_key(cluster: str, database: str) -> str:
    """Return what stands for the owner of a CloudNativePG Database object: the database that it describes."""
    return f"{cluster}/{database}"


def entry_of(kind: str, manifest: Manifest) -> Entry:
    """Return what is kept of an object."""
    meta = {name: value for name, value in manifest["metadata"].items() if name != "managedFields"}
    kept = {**manifest, "metadata": meta}
    if kind == "Pod":
        kept.pop("spec", None)
    return Entry(meta["name"], meta.get("uid", ""), _version(meta), json.dumps(kept, separators=(",", ":")).encode())


Index = Mapping[Owner, Iterable[Entry]]


@dataclass
class _Scope:
    """The indexes by kind of one namespace, or of all; `deleted` are uids that they should no longer hold."""

    indexes: Mapping[str, Index]
    deleted: dict[str, frozenset[str]] = field(default_factory=dict)


@dataclass
class ObjectCache:
    """Answers from the indexes and from our own writes."""

    clock: Callable[[], float] = monotonic
    _scopes: dict[str, _Scope] = field(default_factory=dict)
    _written: dict[tuple[str, Owner], dict[str, tuple[Entry, float]]] = field(default_factory=dict)

    def use(self, namespaces: Collection[str], indexes: Mapping[str, Index]) -> None:
        """Answer from these indexes, by kind, in these namespaces; in every one if there is no namespace."""
        for namespace in namespaces or ("",):
            self._scopes[namespace] = _Scope(indexes)

    def find(self, kind: str, owner: Owner) -> list[Manifest] | None:
        """Return the objects of a kind and an owner, or None if the cache does not know."""
        index, gone = self._index(kind, owner[0])
        if index is None:
            return None
        found = {entry.name: entry for entry in index.get(owner, ()) if entry.uid not in gone}
        found.update(self._unseen(kind, owner, found))
        return [json.loads(entry.content) for entry in found.values()]

    def every(self, kind: str, namespace: str) -> list[Manifest] | None:
        """Return the objects of a kind in a namespace, or in all if it is empty; None if the cache does not know."""
        index, _ = self._index(kind, namespace)
        if index is None:
            return None
        owners = [owner for owner in index if namespace in {"", owner[0]}]
        return [manifest for owner in owners for manifest in self.find(kind, owner) or ()]

    def remember(self, manifest: Manifest) -> None:
        """Keep the object that our own write returned until the index has it or a newer one."""
        kind = manifest.get("kind", "")
        if kind in {*WATCHED, *WATCHED_OF_CNPG}:
            self._forget_older()
            entry, owner = entry_of(kind, manifest), owner_of(kind, manifest)
            self._written.setdefault((kind, owner), {})[entry.name] = (entry, self.clock())

    def scopes(self) -> list[tuple[str, str]]:
        """Return the kinds that are watched, each with a namespace or, for all, an empty text."""
        return [(kind, namespace) for namespace, scope in self._scopes.items() for kind in scope.indexes]

    def uids(self, kind: str, namespace: str) -> frozenset[str]:
        """Return the uids of all objects that the index of this scope holds."""
        index, _ = self._index(kind, namespace)
        owners = [owner for owner in index or () if namespace in {"", owner[0]}]
        return frozenset(entry.uid for owner in owners for entry in (index or {})[owner])

    def ignore(self, kind: str, namespace: str, deleted: frozenset[str]) -> None:
        """Leave these objects, by uid, out of all answers of this scope."""
        self._scopes[namespace].deleted[kind] = deleted

    def _index(self, kind: str, namespace: str) -> tuple[Index | None, frozenset[str]]:
        scope = self._scopes.get(namespace) or self._scopes.get("")
        index = scope.indexes.get(kind) if scope else None
        if scope is None or index is None or (kind in WATCHED_OF_CNPG and not scope.indexes["Cluster"]):
            return None, frozenset()  # without any Cluster, CloudNativePG may not be installed
        return index, scope.deleted.get(kind, frozenset())

    def _forget_older(self) -> None:
        """Forget the writes of objects that nobody has looked for since, because their MemoryIndex is gone."""
        oldest = self.clock() - FORGOTTEN_SECONDS
        for key, written in list(self._written.items()):
            if all(at < oldest for _, at in written.values()):
                del self._written[key]

    def _unseen(self, kind: str, owner: Owner, found: Mapping[str, Entry]) -> dict[str, Entry]:
        """Return our own writes that the index does not have yet, and forget the others."""
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
