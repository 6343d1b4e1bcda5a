"""Read the Kubernetes objects that a reconcile needs from the cache, or from the API server if the cache lacks them."""

import asyncio
import itertools
from collections.abc import Collection

from memory_operator.api.spec import Manifest
from memory_operator.clients.kube import KindMissingError, Kube, KubeError
from memory_operator.controller.cache import WATCHED_OF_CNPG, ObjectCache
from memory_operator.controller.entries import REFERRING, Owner, database_key, entry_of, owner_of
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

    async def kubernetes(self) -> str:
        """Return the uid of the namespace kube-system, which identifies the Kubernetes cluster; it is read once."""
        self._kubernetes = self._kubernetes or await self._kube.namespace_uid("kube-system")
        return self._kubernetes

    async def get(self, kind: str, namespace: str, name: str) -> Manifest | None:
        """Return a MemoryIndex or a Cluster, or None if it does not exist."""
        found = self._cache.find(kind, (namespace, name))
        return await self._kube.get(kind, namespace, name) if found is None else next(iter(found), None)

    async def children(self, kind: str, namespace: str, name: str) -> list[Manifest]:
        """Return the objects of a kind that carry the labels of this MemoryIndex.

        Raises:
            NamespaceFullError: the objects of the namespace take too much memory.
        """
        found = self._cache.find(kind, (namespace, name))
        return await self._kube.list(kind, namespace, child_labels(name)) if found is None else found

    async def databases(self, namespace: str, cluster: str, database: str) -> list[Manifest]:
        """Return the Database objects in a namespace that describe this database of this Cluster.

        Raises:
            KindMissingError: CloudNativePG is not installed.
        """
        found = self._cache.find("Database", (namespace, database_key(cluster, database)))
        if found is None:
            found = await self._kube.list("Database", namespace)
        return [item for item in found if _targets(item, cluster=cluster, database=database)]

    async def indexes(self, namespace: str) -> list[Manifest]:
        """Return the MemoryIndex objects of a namespace, or of all namespaces if `namespace` is empty."""
        found = self._cache.every("MemoryIndex", namespace)
        return await self._kube.list("MemoryIndex", namespace) if found is None else found

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
        held = self._cache.uids(kind, namespace)
        try:
            live = await self._kube.uids(kind, namespace, watched_labels(kind))
        except KindMissingError:
            live = frozenset()
        except KubeError:
            return  # compared again in a few minutes
        self._cache.ignore(kind, namespace, held - live)


def _targets(item: Manifest, *, cluster: str, database: str) -> bool:
    spec = item.get("spec") or {}
    return (spec.get("cluster") or {}).get("name") == cluster and spec.get("name") == database
