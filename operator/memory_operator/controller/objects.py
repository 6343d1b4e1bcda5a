"""Read the Kubernetes objects that a reconcile needs from the cache, or from the API server if the cache lacks them."""

import asyncio
import itertools
import json
from collections.abc import Collection

from memory_operator.api.spec import Manifest
from memory_operator.clients.kube import LISTED_BYTES, KindMissingError, Kube, KubeError, NamespaceFullError
from memory_operator.controller.cache import NAMESPACE_BYTES, WATCHED_OF_CNPG, ObjectCache, reading
from memory_operator.controller.entries import REFERRING, Owner, database_key, entry_of, owner_of, peer_of
from memory_operator.reconcile.facts import Peer
from memory_operator.resources.common import LABEL_INSTANCE, LABEL_MANAGED_BY, MANAGER

COMPARE_SECONDS = 300.0


def watched_labels(kind: str) -> dict[str, str] | None:
    """Return the labels that select the watched objects of a kind, or None if all objects of the kind are watched."""
    return None if kind in {"MemoryIndex", *WATCHED_OF_CNPG} else {LABEL_MANAGED_BY: MANAGER}


def child_labels(name: str) -> dict[str, str]:
    """Return the labels of the objects that the operator makes for a MemoryIndex."""
    return {LABEL_INSTANCE: name, LABEL_MANAGED_BY: MANAGER}


class Objects:
    """Reads watched objects from the cache or the Kubernetes API server."""

    def __init__(self, kube: Kube, cache: ObjectCache) -> None:
        self._kube = kube
        self._cache = cache
        self._kubernetes = ""
        self._reading = asyncio.Lock()

    async def kubernetes(self) -> str:
        """Return the uid of the namespace kube-system, which identifies the Kubernetes cluster; it is read once."""
        self._kubernetes = self._kubernetes or await self._kube.namespace_uid("kube-system")
        return self._kubernetes

    async def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """Return a MemoryIndex or a Cluster, or None if it does not exist."""
        found = self._cache.find(kind, (namespace, name))
        return await self._kube.get(kind, namespace, name) if found is None else next(iter(found), None)

    async def children(self, kinds: Collection[str], namespace: str, name: str) -> dict[str, list[Manifest]]:
        """Return, by kind, the objects that carry the labels of this MemoryIndex and may belong to it.

        Raises:
            NamespaceFullError: the objects of the namespace take too much memory.
        """
        cached = {kind: self._cache.find(kind, (namespace, name)) for kind in kinds}
        unknown = [kind for kind, items in cached.items() if items is None]
        read = await self._read(unknown, namespace, name) if unknown else {}
        return {kind: read[kind] if items is None else items for kind, items in cached.items()}

    async def _read(self, kinds: Collection[str], namespace: str, name: str) -> dict[str, list[Manifest]]:
        """Return the same from the API server.

        Objects are reduced to their entries as they arrive, kind after kind and for one MemoryIndex after the other,
        so that few whole objects are in memory. Those that have no entry count as well, because reading them takes
        time.
        """
        kept: dict[str, list[bytes]] = {kind: [] for kind in kinds}
        total, transferred = 0, 0
        async with self._reading:
            for kind in kinds:
                async for items, size in self._kube.pages(kind, namespace, child_labels(name)):
                    contents = [entry.content for entry in (entry_of(kind, item) for item in items) if entry]
                    kept[kind] += contents
                    transferred, total = transferred + size, total + sum(map(len, contents))
                    for taken, limit in ((total, NAMESPACE_BYTES), (transferred, LISTED_BYTES)):
                        if taken > limit:
                            raise NamespaceFullError(reading(namespace), namespace, limit)
        return {kind: [json.loads(content) for content in contents] for kind, contents in kept.items()}

    async def databases(self, namespace: str, cluster: str, database: str) -> list[Manifest]:
        """Return the Database objects in a namespace that describe this database of this Cluster.

        Raises:
            KindMissingError: CloudNativePG is not installed.
        """
        found = self._cache.find("Database", (namespace, database_key(cluster, database)))
        if found is None:
            found = await self._kube.list("Database", namespace)
        return [item for item in found if _targets(item, cluster=cluster, database=database)]

    async def naming(self, table: tuple[str, str], namespaces: Collection[str]) -> list[Peer]:
        """Return what the MemoryIndex objects of these namespaces say that name this database and table."""
        found = self._cache.naming(table)
        if found is not None:
            return found
        read = [
            peer_of(item)
            for namespace in namespaces
            async for items, _ in self._kube.pages("MemoryIndex", namespace)
            for item in items
        ]
        return [peer for peer in read if peer and peer.named_table == table]

    async def referring(self, to: Owner, namespaces: Collection[str]) -> list[Owner]:
        """Return the sorted names of the MemoryIndex objects of these namespaces that use the embedder of `to`.

        An object uses that embedder if its specification names it, or if its sync worker still calls it. A worker whose
        MemoryIndex no longer exists is left out.
        """
        found = self._cache.referring(to, namespaces)
        if found is not None:
            return found
        existing, using = set(), set()
        for namespace, kind in itertools.product(sorted(namespaces), REFERRING):
            for item in await self._readable(kind, namespace):
                entry, owner = entry_of(kind, item), owner_of(kind, item)
                existing |= {owner} if kind == "MemoryIndex" else set()
                using |= {owner} if entry and entry.refers_to == to else set()
        return sorted(using & existing - {to})

    async def _readable(self, kind: str, namespace: str) -> list[Manifest]:
        try:
            return await self._kube.list(kind, namespace, watched_labels(kind))
        except KubeError as error:
            if not error.refused:
                raise
            return []  # the operator acts for no object of a namespace that it may not read

    async def compare(self) -> None:
        """Compare the cache with the API server every five minutes, and ignore cached objects that no longer exist."""
        while True:
            await asyncio.sleep(COMPARE_SECONDS)
            for kind, namespace in self._cache.scopes():
                await self._compare(kind, namespace)

    async def _compare(self, kind: str, namespace: str) -> None:
        cached = self._cache.uids(kind, namespace)
        try:
            live = await self._kube.uids(kind, namespace, watched_labels(kind))
        except KindMissingError:
            live = frozenset()
        except KubeError:
            return  # compared again in a few minutes
        self._cache.ignore(kind, namespace, cached - live)


def _targets(item: Manifest, *, cluster: str, database: str) -> bool:
    spec = item.get("spec") or {}
    return (spec.get("cluster") or {}).get("name") == cluster and spec.get("name") == database
