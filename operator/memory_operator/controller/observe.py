"""Observe everything that one reconcile decides from.

Everything is read anew, since a cache could be older than our own last write. Order matters in one place: Database
objects are read before the database, so that an extension that is missing although its object was carried out was
truly removed by somebody.
"""

import asyncio
from collections.abc import Awaitable, Callable

from memory_operator.api.reasons import Reason
from memory_operator.api.spec import Manifest, MemoryIndex
from memory_operator.clients import object_facts
from memory_operator.clients.embedder import EmbedderProbe
from memory_operator.clients.kube import KindMissingError, Kube
from memory_operator.reconcile.facts import ClusterFacts, DatabaseFacts, Observed, Problem, ServedModel
from memory_operator.resources.cnpg import DatabaseObject
from memory_operator.resources.common import LABEL_INSTANCE, LABEL_MANAGED_BY, MANAGER
from memory_operator.resources.embedder import COMPONENT, NEXT_COMPONENT

Inspect = Callable[[str, str], Awaitable[DatabaseFacts | Problem]]


class Observer:
    """Gathers the facts about one MemoryIndex; keeps no state."""

    def __init__(self, kube: Kube, inspect: Inspect, probe: EmbedderProbe) -> None:
        self._kube = kube
        self._inspect = inspect
        self._probe = probe

    async def observe(self, index: MemoryIndex) -> Observed:
        """Return the facts about the object's Secret, Cluster, database, children and embedder."""
        dsn, (cluster, database_objects), children = await asyncio.gather(
            self._dsn(index), self._cnpg(index), self._children(index)
        )
        deployments = {item["metadata"]["name"]: object_facts.deployment_facts(item) for item in children["Deployment"]}
        pods = tuple(object_facts.pod_facts(pod) for pod in children["Pod"])
        return Observed(
            credentials=dsn if isinstance(dsn, Problem) else object_facts.credentials(dsn, *_dsn_key(index)),
            cluster=cluster,
            database_objects=database_objects,
            database=await self._database(index, dsn, cluster),
            jobs=tuple(object_facts.job_facts(job, children["Pod"]) for job in children["Job"]),
            pods=pods,
            embedder=deployments.get(f"{index.name}-{COMPONENT}"),
            next_embedder=deployments.get(f"{index.name}-{NEXT_COMPONENT}"),
            sync=deployments.get(f"{index.name}-sync"),
            loads=await self._probe.loads(pod for pod in pods if pod.component == COMPONENT),
            external=await self._external(index),
            children={
                (kind, item["metadata"]["name"]): item
                for kind in ("Deployment", "Service", "NetworkPolicy", "PodDisruptionBudget")
                for item in children[kind]
            },
        )

    async def _dsn(self, index: MemoryIndex) -> str | Problem:
        secret = await self._kube.get("Secret", index.namespace, index.secret_name)
        return object_facts.secret_value(secret, *_dsn_key(index))

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
        ours = [item for item in items if _targets(item, cluster=name, database=database)]
        return object_facts.cluster_facts(cluster), tuple(object_facts.database_object(item) for item in ours)

    async def _database(
        self, index: MemoryIndex, dsn: str | Problem, cluster: ClusterFacts | Problem | None
    ) -> DatabaseFacts | Problem | None:
        if isinstance(dsn, Problem) or isinstance(cluster, Problem) or (cluster and not cluster.answers):
            return None
        return await self._inspect(dsn, index.spec.database.table)

    async def _children(self, index: MemoryIndex) -> dict[str, list[Manifest]]:
        labels = {LABEL_INSTANCE: index.name, LABEL_MANAGED_BY: MANAGER}
        kinds = ("Deployment", "Service", "NetworkPolicy", "PodDisruptionBudget", "Job", "Pod")
        found = await asyncio.gather(*(self._kube.list(kind, index.namespace, labels) for kind in kinds))
        return dict(zip(kinds, found, strict=True))

    async def _external(self, index: MemoryIndex) -> ServedModel | Problem | None:
        """Return what an external embedder serves; of a hosted provider only the key is checked."""
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
            f"{index.namespace}/{named.secret_name}",
            named.key,
            holds="the API key",
            named_by="spec.embedding.apiKey" if index.hosted else "spec.embedder.external.apiKey",
        )


def _dsn_key(index: MemoryIndex) -> tuple[str, str]:
    """Return the Secret of the connection URI, as namespace/name, and its key."""
    return f"{index.namespace}/{index.secret_name}", index.spec.database.credentials.key


def _targets(item: Manifest, *, cluster: str, database: str) -> bool:
    spec = item.get("spec") or {}
    return (spec.get("cluster") or {}).get("name") == cluster and spec.get("name") == database
