"""Cache the watched objects, so that a reconcile of an unchanged object does not request them.

The objects are in kopf's indexes, which are filled before the first event is handled and are then kept current by
watches. This module adds what an index lacks:

- An index lags behind the operator's own writes. Therefore an object that a write has returned is used until the index
  contains this version of the object or a newer one.
- An index misses a deletion if its watch is interrupted for so long that Kubernetes no longer reports the deletion.
  Therefore the objects of an index are regularly compared with a list from the API server.
- An index does not show whether a missing object does not exist or is not watched. Where both are possible, the
  answer is None, and the caller requests the object.

What the objects of one namespace may take of the memory is limited, so that nobody who may create objects in one
namespace fills the operator's memory. In a namespace beyond the limit nothing is reconciled until it is below. Then the
API server is asked for its objects until a watch has shown again, as changed or deleted, each that was not kept.

What all namespaces take together is limited, too, because one author may have many of them. Beyond that limit the
entries of the largest namespace are dropped. A namespace whose entries were dropped is refused while they would not fit
in, unless it takes so little that its objects can well be read from the API server. So a small namespace is served
whatever large ones take.

Before a table is claimed, all MemoryIndex objects that name it are compared, of all namespaces. So what each says about
its table is kept also where the rest of it is not, and nobody waits for the objects of a namespace that has too many.
It counts towards both limits. If the largest namespace has nothing else left to drop, it is dropped as well. Then the
objects of that namespace are taken to name no table, so that a younger object elsewhere may be the first to claim it.
"""

import itertools
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic

from memory_operator.api.spec import Manifest
from memory_operator.clients.kube import NamespaceFullError
from memory_operator.controller.entries import CHILDREN, REFERRING, Entry, Owner, entry_of, owner_of
from memory_operator.reconcile.facts import Peer

WATCHED = ("MemoryIndex", *CHILDREN, "Job", "ReplicaSet", "Pod")
WATCHED_OF_CNPG = ("Cluster", "Database")
LATEST_SECONDS = 30.0  # after a write; an object of it that no watch has shown by then was deleted
FORGOTTEN_SECONDS = 600.0
NAMESPACE_BYTES = 32 * 1024 * 1024  # of entries; a MemoryIndex and its objects take some 30 KiB
TOTAL_BYTES = 128 * 1024 * 1024  # of the entries of all namespaces
SMALL_BYTES = 4 * 1024 * 1024  # of a namespace that the others do not displace; more than a hundred MemoryIndexes

Index = Mapping[Owner, Iterable[Entry]]


def reading(namespace: str) -> str:
    """Return how `NamespaceFullError` names the action that failed: reading the objects of a namespace."""
    return f"reading the objects with the operator's labels in namespace {namespace}"


@dataclass
class _Scope:
    """The indexes by kind, for one namespace or for all. `deleted` maps a kind to the uids of objects to ignore."""

    indexes: Mapping[str, Index]
    deleted: dict[str, frozenset[str]] = field(default_factory=dict)


@dataclass
class _Usage:
    """The size of each object's entry in one namespace, by kind and uid, and the sum of the sizes.

    `missing` are the objects whose content was not kept, by kind and uid. `kept` are the entries that are in memory,
    with their content or only with what a MemoryIndex says about its table; `held` is the sum of what they take.
    """

    sizes: dict[tuple[str, str], int] = field(default_factory=dict)
    total: int = 0
    missing: set[tuple[str, str]] = field(default_factory=set)
    kept: dict[tuple[str, str], Entry] = field(default_factory=dict)
    held: int = 0

    def set(self, key: tuple[str, str], size: int) -> None:
        """Count this size for an object's entry in place of the former one; 0 if the object has no entry."""
        self.total += size - self.sizes.pop(key, 0)
        self.missing.discard(key)
        former = self.kept.pop(key, None)
        self.held -= former.size if former else 0
        if size:
            self.sizes[key] = size

    def keep(self, key: tuple[str, str], entry: Entry) -> None:
        if entry.size:
            self.kept[key] = entry
            self.held += entry.size

    def drop(self) -> None:
        """Free the memory of all contents, for which the API server is then asked; if there are none, of the rest."""
        has_contents = any(entry.content for entry in self.kept.values())
        for entry in self.kept.values():
            entry.content, entry.peer = b"", entry.peer if has_contents else None
        self.missing.update(self.kept)
        self.kept = {key: entry for key, entry in self.kept.items() if entry.size}
        self.held = sum(entry.size for entry in self.kept.values())


@dataclass
class ObjectCache:
    """Finds watched objects in kopf's indexes and among the results of the operator's own writes."""

    clock: Callable[[], float] = monotonic
    _scopes: dict[str, _Scope] = field(default_factory=dict)
    _written: dict[tuple[str, Owner], dict[str, tuple[Entry, float]]] = field(default_factory=dict)
    _usage: dict[str, _Usage] = field(default_factory=dict)
    _held: int = 0

    def admit(self, kind: str, manifest: Manifest) -> dict[Owner, Entry]:
        """Return what kopf is to keep of a watched object in the index of its kind; empty if nothing is kept."""
        entry, meta = entry_of(kind, manifest), manifest["metadata"]
        usage, key = self._usage.setdefault(meta["namespace"], _Usage()), (kind, meta.get("uid", ""))
        held = usage.held
        usage.set(key, entry.size if entry else 0)
        if entry and self._is_refused(usage):
            usage.missing.add(key)
            entry.content = b""
        if entry:
            usage.keep(key, entry)
        self._held += usage.held - held
        self._make_room()
        return {owner_of(kind, manifest): entry} if entry and key in usage.kept else {}

    def forget(self, kind: str, namespace: str, uid: str) -> None:
        """Take a deleted object out of what its namespace is counted to take of the memory."""
        usage = self._usage.get(namespace)
        if usage:
            held = usage.held
            usage.set((kind, uid), 0)
            self._held += usage.held - held

    def use(self, namespaces: Collection[str], indexes: Mapping[str, Index]) -> None:
        """Use these indexes, by kind, for these namespaces, or for every namespace if `namespaces` is empty."""
        for namespace in namespaces or ("",):
            self._scopes[namespace] = _Scope(indexes)

    def find(self, kind: str, owner: Owner) -> list[Manifest] | None:
        """Return the cached objects of a kind and an owner, or None if the API server must be asked.

        Raises:
            NamespaceFullError: the namespace is beyond its limit, or is the largest where all take too much. A
                MemoryIndex may be read all the same.
        """
        index, gone = self._index(kind, owner[0])
        usage = self._usage.get(owner[0], _Usage())
        if kind != "MemoryIndex" and self._is_refused(usage):
            limit = NAMESPACE_BYTES if usage.total > NAMESPACE_BYTES else SMALL_BYTES
            raise NamespaceFullError(reading(owner[0]), owner[0], limit)
        if index is None or usage.missing:
            return None
        found = {entry.name: entry for entry in index.get(owner, ()) if entry.uid not in gone}
        found.update(self._unseen(kind, owner, found))
        if not all(entry.content for entry in found.values()):
            return None  # kopf has not replaced yet an entry that was dropped
        return [json.loads(entry.content) for entry in found.values()]

    def naming(self, table: tuple[str, str]) -> list[Peer] | None:
        """Return what the cached MemoryIndex objects say that name this database and table.

        The answer is None if nothing is cached at all, so that the API server must be asked. An object that is not
        watched is not acted for, and claims nothing.
        """
        if not self._scopes:
            return None
        found: list[Peer] = []
        for scope in self._scopes.values():
            gone, index = scope.deleted.get("MemoryIndex", frozenset()), scope.indexes.get("MemoryIndex", {})
            known = (entry.peer for owner in index for entry in index[owner] if entry.uid not in gone)
            found += [peer for peer in known if peer and peer.named_table == table]
        return found

    def referring(self, to: Owner, namespaces: Collection[str]) -> list[Owner] | None:
        """Return the cached MemoryIndex objects of these namespaces that use the embedder of another one.

        One uses it if it names it, or if its sync worker still calls it. A worker whose MemoryIndex does not exist is
        nobody's. The answer is None if nothing is cached at all, so that the API server must be asked. An object that
        is not watched is not acted for, and uses nothing. All objects are looked at once, however many namespaces are
        given.
        """
        if not self._scopes:
            return None
        existing, using = set(), set()
        for scope, kind in itertools.product(self._scopes.values(), REFERRING):
            gone, index = scope.deleted.get(kind, frozenset()), scope.indexes.get(kind, {})
            for owner in index:
                entries = [entry for entry in index[owner] if entry.uid not in gone] if owner[0] in namespaces else []
                existing |= {owner} if entries and kind == "MemoryIndex" else set()
                using |= {owner for entry in entries if entry.refers_to == to}
        return sorted(using & existing - {to})

    def remember(self, manifest: Manifest) -> None:
        """Keep an object that a write has returned, until the index contains this version or a newer one."""
        kind = manifest.get("kind", "")
        entry = entry_of(kind, manifest) if kind in {*WATCHED, *WATCHED_OF_CNPG} else None
        if entry:
            self._forget_older()
            owner = owner_of(kind, manifest)
            self._written.setdefault((kind, owner), {})[entry.name] = (entry, self.clock())

    def scopes(self) -> list[tuple[str, str]]:
        """Return each watched kind with its namespace, which is empty if all namespaces are watched."""
        return [(kind, namespace) for namespace, scope in self._scopes.items() for kind in scope.indexes]

    def uids(self, kind: str, namespace: str) -> frozenset[str]:
        """Return the uids of the objects of a kind that are counted in a namespace, or everywhere if it is empty.

        Those that were not kept are among them, since they are counted until they are known to be deleted.
        """
        usages = [usage for one, usage in self._usage.items() if namespace in {"", one}]
        return frozenset(uid for usage in usages for counted, uid in usage.sizes if counted == kind)

    def ignore(self, kind: str, namespace: str, deleted: frozenset[str]) -> None:
        """Leave the objects with these uids out of all answers about this kind and namespace."""
        self._scopes[namespace].deleted[kind] = deleted
        for one in (namespace,) if namespace else tuple(self._usage):
            for uid in deleted:
                self.forget(kind, one, uid)

    def _is_refused(self, usage: _Usage) -> bool:
        """Return whether the objects of a namespace must not be read.

        They take more than one namespace may; or their entries were dropped to make room for those of others, there is
        no room for them yet, and they are too many to be read from the API server each time.
        """
        displaced = bool(usage.missing) and self._held - usage.held + usage.total > TOTAL_BYTES
        return usage.total > NAMESPACE_BYTES or (displaced and usage.total > SMALL_BYTES)

    def _make_room(self) -> None:
        while self._held > TOTAL_BYTES:
            largest = max(self._usage.values(), key=lambda usage: usage.held)
            self._held -= largest.held
            largest.drop()
            self._held += largest.held

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
