"""Looking at the world for one MemoryIndex.

Everything is read anew, since a cache could be older than our own last write. Order matters in one place: Database
objects are read before the database, so that an extension which is missing after its object was carried out was
truly removed by somebody.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from memory_operator.api.reasons import Reason
from memory_operator.api.spec import Manifest, MemoryIndex
from memory_operator.clients import object_facts
from memory_operator.clients.embedder import EmbedderProbe
from memory_operator.clients.kube import KindMissingError, Kube
from memory_operator.reconcile.observed import (
    ClusterFacts,
    Credentials,
    DatabaseFacts,
    DatabaseObject,
    Observed,
    PodFacts,
    Problem,
)
from memory_operator.resources.common import LABEL_INSTANCE, LABEL_MANAGED_BY, MANAGER
from memory_operator.resources.embedder import NEXT_COMPONENT

Inspect = Callable[[str, str], Awaitable[DatabaseFacts | Problem]]


class Observer:
    """Gathers the facts; holds no state."""

    def __init__(self, kube: Kube, inspect: Inspect, probe: EmbedderProbe) -> None:
        self._kube = kube
        self._inspect = inspect
        self._probe = probe

    async def observe(self, index: MemoryIndex) -> Observed:
        """Facts about everything that decides what is to be done."""
        secret, (cluster, objects), children = await asyncio.gather(
            self._dsn(index), self._cnpg(index), self._children(index)
        )
        database = await self._database(index, secret, cluster)
        credentials = self._credentials(index, secret)
        return replace(
            await self._embedder(index, children),
            credentials=credentials,
            cluster=cluster,
            database_objects=objects,
            database=database,
        )

    async def _dsn(self, index: MemoryIndex) -> str | Problem:
        secret = await self._kube.get("Secret", index.namespace, index.secret_name)
        return object_facts.secret_value(secret, called=self._called(index), key=index.spec.database.credentials.key)

    def _credentials(self, index: MemoryIndex, dsn: str | Problem) -> Credentials | Problem:
        if isinstance(dsn, Problem):
            return dsn
        return object_facts.credentials(dsn, called=self._called(index), key=index.spec.database.credentials.key)

    @staticmethod
    def _called(index: MemoryIndex) -> str:
        return f"{index.namespace}/{index.secret_name}"

    async def _cnpg(self, index: MemoryIndex) -> tuple[ClusterFacts | Problem | None, tuple[DatabaseObject, ...]]:
        if index.cluster is None:
            return None, ()
        namespace, name = index.cluster
        try:
            items = await self._kube.list("Database", namespace)
        except KindMissingError:
            return Problem(Reason.CNPG_MISSING, "The cluster does not know CloudNativePG's kinds."), ()
        cluster = await self._kube.get("Cluster", namespace, name)
        if cluster is None:
            return Problem(Reason.CLUSTER_MISSING, f"Cluster {namespace}/{name} does not exist."), ()
        database = index.spec.database.name
        ours = [item for item in items if _speaks_of(item, cluster=name, database=database)]
        return object_facts.cluster_facts(cluster), tuple(object_facts.database_object(item) for item in ours)

    async def _database(
        self, index: MemoryIndex, dsn: str | Problem, cluster: ClusterFacts | Problem | None
    ) -> DatabaseFacts | Problem | None:
        if isinstance(dsn, Problem) or isinstance(cluster, Problem) or (cluster and cluster.hibernated):
            return None
        return await self._inspect(dsn, index.spec.database.table)

    async def _children(self, index: MemoryIndex) -> dict[str, list[Manifest]]:
        labels = {LABEL_INSTANCE: index.name, LABEL_MANAGED_BY: MANAGER}
        kinds = ("Deployment", "Service", "NetworkPolicy", "Job", "Pod")
        found = await asyncio.gather(*(self._kube.list(kind, index.namespace, labels) for kind in kinds))
        return dict(zip(kinds, found, strict=True))

    async def _embedder(self, index: MemoryIndex, children: dict[str, list[Manifest]]) -> Observed:
        deployments = {item["metadata"]["name"]: item for item in children["Deployment"]}
        embedder, sync = deployments.get(f"{index.name}-embedder"), deployments.get(f"{index.name}-sync")
        following = deployments.get(f"{index.name}-{NEXT_COMPONENT}")
        pods = tuple(object_facts.pod_facts(pod) for pod in children["Pod"])
        jobs = tuple(object_facts.job_facts(job, children["Pod"]) for job in children["Job"])
        named = {
            (kind, item["metadata"]["name"]): item
            for kind in ("Deployment", "Service", "NetworkPolicy")
            for item in children[kind]
        }
        return Observed(
            credentials=Problem(Reason.SECRET_MISSING, ""),
            jobs=jobs,
            pods=pods,
            embedder=object_facts.deployment_facts(embedder) if embedder else None,
            next_embedder=object_facts.deployment_facts(following) if following else None,
            sync=object_facts.deployment_facts(sync) if sync else None,
            loads=await self._probe.loads(_embedders(pods)),
            external=await self._external(index),
            children=named,
        )

    async def _external(self, index: MemoryIndex) -> Problem | None:
        """What is wrong with an embedder that is not ours. A hosted provider is not asked: that is for the workers."""
        if index.runs_embedder:
            return None
        key = await self._embedder_key(index)
        if isinstance(key, Problem):
            return key
        return None if index.hosted else await self._probe.external(index, key)

    async def _embedder_key(self, index: MemoryIndex) -> str | Problem | None:
        named = index.embedder_key
        if named is None:
            return None
        secret = await self._kube.get("Secret", index.namespace, named.secret_name)
        return object_facts.secret_value(
            secret,
            called=f"{index.namespace}/{named.secret_name}",
            key=named.key,
            holds="the API key",
            named_by="spec.embedding.apiKey" if index.hosted else "spec.embedder.external.apiKey",
        )


def _speaks_of(item: Manifest, *, cluster: str, database: str) -> bool:
    spec = item.get("spec") or {}
    return (spec.get("cluster") or {}).get("name") == cluster and spec.get("name") == database


def _embedders(pods: tuple[PodFacts, ...]) -> tuple[PodFacts, ...]:
    return tuple(pod for pod in pods if pod.component == "embedder")
