"""Observe all facts that the decisions of one reconcile depend on.

Watched objects come from the cache, which is never older than the operator's own last write. Secrets, the database and
embedders are read at each reconcile. For a deletion, only the facts about what has to be undone are read, so that
nothing else can delay the deletion.

The order matters in two places. Consent is checked before the value of a Secret is used. CloudNativePG's Database
objects are read before the database itself, so that a missing extension has one explanation: if CloudNativePG has
already applied an object that requests the extension, somebody has removed the extension.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Container, Iterable, Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from memory_operator.api.embedder import COMPONENT, CaConfigMap, CaSecret, SecretKey, embedder_owner
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import Manifest, MemoryIndex, parsed
from memory_operator.clients import object_facts
from memory_operator.clients.authorities import Authorities
from memory_operator.clients.certificates import role_certificate
from memory_operator.clients.embedder import EmbedderProbe
from memory_operator.clients.kube import EVERY_NAMESPACE, KindMissingError, Kube, KubeError
from memory_operator.controller.cache import ObjectCache
from memory_operator.controller.embedder_tls import EmbedderTlsObserver
from memory_operator.controller.entries import CHILDREN
from memory_operator.controller.objects import Objects, child_labels
from memory_operator.controller.secret_reader import SecretReader
from memory_operator.reconcile.active_embedder import before_swap, embedder_of_active, needs_swap
from memory_operator.reconcile.authorization.claims import holder_to_read, is_claimed_by
from memory_operator.reconcile.authorization.consent import check_cluster, check_embedder_owner, check_secret
from memory_operator.reconcile.authorization.database_tls import (
    ca_secret,
    database_tls,
)
from memory_operator.reconcile.authorization.existing_pods import component_of
from memory_operator.reconcile.facts import (
    ClusterFacts,
    Credentials,
    DeletionFacts,
    DeploymentFacts,
    Inspection,
    JobFacts,
    Observed,
    Peers,
    PodFacts,
    Problem,
    ReportedModel,
    RoleCertificate,
)
from memory_operator.reconcile.indexing.graph import may_have_graph
from memory_operator.reconcile.swap_abort import may_be_unfinished
from memory_operator.resources.cnpg import DatabaseObject, own_labels
from memory_operator.resources.columns import column_names
from memory_operator.resources.embedder import EMBEDDERS, NEXT_COMPONENT, embedder_url
from memory_operator.resources.ownership import controller_uid
from memory_operator.resources.worker_pods import configured_embedder, mounted_secrets
from memory_recall.errors import InvalidConfiguration
from memory_recall.postgres.client_certificate import ClientCertificate
from memory_recall.postgres.connection import DsnText
from memory_recall.postgres.tls import DatabaseTls
from memory_recall.schema.claims_sql import TableClaim
from memory_recall.schema.columns.names import ColumnNames
from memory_recall.status import DatabaseFacts

Inspect = Callable[[DsnText, str, str, ColumnNames | None], Awaitable[Inspection]]
_SEEN_BY_OWNER = {Reason.EXTERNAL_UNREACHABLE, Reason.EMBEDDER_NOT_VERIFIED}  # of a shared embedder
_NO_COPIES: Mapping[str, str | Problem] = {}
STORING = frozenset({"sync", "backfill"})  # workers that store vectors of the active model
NOT_INSPECTED = Inspection(None)


@dataclass(frozen=True)
class Running:
    """What runs for a MemoryIndex: the Deployment of its sync worker, its Jobs, and the Deployments of its embedders.

    `refused_keys` are the Secrets that the embedders mount as API keys and must not, by name.
    """

    sync: Manifest | None
    jobs: tuple[JobFacts, ...]
    embedders: tuple[Manifest, ...]
    refused_keys: Mapping[str, Problem]


class Observer:
    """Gathers the facts about one MemoryIndex at a time; what is kept between two times is in its clients' caches."""

    def __init__(
        self,
        kube: Kube,
        inspect: Inspect,
        probe: EmbedderProbe,
        namespaces: tuple[str, ...] = (),
        cache: ObjectCache | None = None,
        *,
        operator_namespace: str = "",
    ) -> None:
        self._kube = kube
        self.authorities = Authorities(lambda namespace, name: kube.get("Secret", namespace, name))
        self.objects = Objects(kube, cache or ObjectCache())
        self._tls = EmbedderTlsObserver(kube, self.objects, self.authorities, probe)
        self._inspect = inspect
        self._probe = probe
        self._namespaces = namespaces
        self._operator_namespace = operator_namespace

    async def observe(self, index: MemoryIndex) -> Observed:
        """Return the facts about a MemoryIndex: its Secret, Cluster, database, embedder and the objects it controls."""
        secrets = SecretReader(self._kube, index.namespace)
        (cluster, database_objects), children = await asyncio.gather(self._cnpg(index), self._children(index))
        manifests = {item["metadata"]["name"]: item for item in children["Deployment"]}
        deployments = {name: object_facts.deployment_facts(item) for name, item in manifests.items()}
        pods = _pods(children)
        credentials, certificates, inspection = await self._inspected(index, secrets, cluster)
        sync = manifests.get(f"{index.name}-sync")
        shared, authorities = await asyncio.gather(self._shared(index, sync), self._tls.copied(index, sync))
        reference = shared.get(embedder_url(index)) if index.spec.embedder.ref else None
        consented = frozenset(urlsplit(url).hostname or "" for url, problem in shared.items() if problem is None)
        report = await self._probe.worker_report(_workers_to_ask(index, pods, inspection.found))
        return Observed(
            credentials=credentials,
            cluster=cluster,
            database_objects=database_objects,
            database=inspection.found,
            database_ca=certificates if isinstance(certificates, str) else "",
            query_seconds=inspection.query_seconds,
            peers=await self._peers(index, inspection.found),
            jobs=tuple(object_facts.job_facts(job, children["Pod"]) for job in children["Job"]),
            pods=pods,
            embedder=deployments.get(f"{index.name}-{COMPONENT}"),
            next_embedder=deployments.get(f"{index.name}-{NEXT_COMPONENT}"),
            sync=deployments.get(f"{index.name}-sync"),
            loads=await self._probe.loads(pod for pod in pods if pod.component == COMPONENT),
            next_loads=await self._probe.loads(pod for pod in pods if pod.component == NEXT_COMPONENT),
            key_refused=report.key_refused and index.embedder_key is not None,
            disk_full=report.disk_full,
            external=reference or await self._specified(index, secrets, consented, authorities, deployments),
            active_external=await self._active_external(
                index, secrets, inspection.found, sync, consented=consented, authorities=authorities
            ),
            certificate=await self._tls.certificate(index),
            embedder_authorities=authorities,
            reference=reference,
            consented_hosts=consented,
            referring=await self._referring(index, deployments),
            refused_keys=await self._refused_keys(secrets, manifests.values()),
            operator_namespace=self._operator_namespace,
            kubernetes=await self.objects.kubernetes(),
            children={(kind, item["metadata"]["name"]): item for kind in CHILDREN for item in children[kind]},
        )

    async def running(self, manifest: Manifest) -> Running:
        """Return what an object runs, whatever its specification.

        It is read from the API server, since the cache holds nothing of a namespace whose objects are too large.
        """
        meta = manifest["metadata"]
        namespace, name = meta["namespace"], meta["name"]
        named = [await self._kube.get("Deployment", namespace, f"{name}-{one}") for one in ("sync", *EMBEDDERS)]
        sync, *embedders = [one if one and controller_uid(one) == meta["uid"] else None for one in named]
        existing = tuple(one for one in embedders if one)
        pages = self._kube.pages("Job", namespace, child_labels(name))
        own = [
            object_facts.job_facts(job, ())
            async for jobs, _ in pages
            for job in jobs
            if controller_uid(job) == meta["uid"]
        ]
        refused = await self._refused_keys(SecretReader(self._kube, namespace), existing)
        return Running(sync, tuple(own), existing, refused)

    async def _refused_keys(self, secrets: SecretReader, deployments: Iterable[Manifest]) -> dict[str, Problem]:
        """Return by name the Secrets that embedders among these Deployments mount as API keys and must not."""
        templates = [one["spec"]["template"] for one in deployments if component_of(one) in EMBEDDERS]
        names = sorted({name for template in templates for name in mounted_secrets(template)})
        found = {name: check_secret(secrets.namespace, await secrets.get(name), "api-key") for name in names}
        return {name: problem for name, problem in found.items() if problem}

    async def observe_deletion(self, index: MemoryIndex) -> DeletionFacts:
        """Return the facts from which a deletion decides what to undo before the finalizer is removed."""
        drops, referring = index.spec.deletion_policy == "Delete", await self._referring_to_deleted(index)
        settles = may_have_graph(index) or may_be_unfinished(index)
        needed, terminating, observed = drops or settles or bool(referring), False, None
        try:
            terminating = needed and await self._kube.is_terminating(index.namespace)
            observed = await self.observe(index) if needed and not terminating else None
        except KubeError as error:
            if drops or not error.refused:
                raise
        return DeletionFacts(
            database_objects=await self._own_database_objects(index),
            referring=referring,
            namespace_terminating=terminating,
            observed=observed,
        )

    async def _own_database_objects(self, index: MemoryIndex) -> tuple[DatabaseObject, ...] | None:
        if index.cluster is None:
            return ()
        namespace, _ = index.cluster
        try:
            items = await self._kube.list("Database", namespace, own_labels(index))
        except KindMissingError:
            return ()
        except KubeError as error:
            if error.refused:
                return None
            raise
        return tuple(object_facts.database_object(item) for item in items)

    async def _cnpg(self, index: MemoryIndex) -> tuple[ClusterFacts | Problem | None, tuple[DatabaseObject, ...]]:
        if index.cluster is None:
            return None, ()
        namespace, name = index.cluster
        try:
            found = await self.objects.databases(namespace, name, index.spec.database.name)
        except KindMissingError:
            return Problem(Reason.CNPG_MISSING, "The cluster does not know CloudNativePG's kinds."), ()
        cluster = await self.objects.get("Cluster", namespace, name)
        if cluster is None:
            return Problem(Reason.CLUSTER_MISSING, f"Cluster {namespace}/{name} does not exist."), ()
        facts = object_facts.cluster_facts(cluster)
        return check_cluster(index, facts) or facts, tuple(object_facts.database_object(item) for item in found)

    async def _certificates(self, index: MemoryIndex, cluster: ClusterFacts | Problem | None) -> str | Problem:
        """Return the certificates that the database server is verified by; an empty text if none are used.

        Of a Cluster that may not be used, nothing is read.
        """
        place = ca_secret(index, cluster if isinstance(cluster, ClusterFacts) else None)
        return "" if place is None else await self.authorities.certificates(place)

    async def _inspected(
        self, index: MemoryIndex, secrets: SecretReader, cluster: ClusterFacts | Problem | None
    ) -> tuple[Credentials | Problem, str | Problem, Inspection]:
        """Return the parsed connection URI, the certificates by which the server is verified, and the database's state.

        Each of the first two is a `Problem` instead where it cannot be used.
        """
        dsn = _dsn(index, await secrets.get(index.secret_name), cluster)
        credentials = dsn if isinstance(dsn, Problem) else object_facts.credentials(dsn, *_dsn_key(index))
        certificates, shown = await asyncio.gather(
            self._certificates(index, cluster), self._role_certificate(index, secrets)
        )
        if isinstance(credentials, Credentials) and shown is not None:
            credentials = shown if isinstance(shown, Problem) else replace(credentials, certificate=shown[0])
        pair = shown[1] if isinstance(shown, tuple) else None
        tls = certificates if isinstance(certificates, Problem) else database_tls(index, certificates, pair)
        return credentials, certificates, await self._database(index, dsn, credentials, cluster, tls)

    async def _role_certificate(
        self, index: MemoryIndex, secrets: SecretReader
    ) -> tuple[RoleCertificate, ClientCertificate] | Problem | None:
        """Return the certificate by which the database's role logs in, or why it must or can not be used.

        The result is None if the object names none. A Secret that also holds the connection URI is allowed as that.
        """
        name = index.certificate_secret
        if not name:
            return None
        secret = await secrets.get(name)
        refused = check_secret(index.namespace, secret, "dsn" if name == index.secret_name else "client-certificate")
        return refused or role_certificate(secret, f"{index.namespace}/{name}")

    async def _database(
        self,
        index: MemoryIndex,
        dsn: str | Problem,
        credentials: Credentials | Problem,
        cluster: ClusterFacts | Problem | None,
        tls: DatabaseTls | Problem,
    ) -> Inspection:
        if isinstance(dsn, Problem) or isinstance(credentials, Problem) or isinstance(cluster, Problem):
            return NOT_INSPECTED
        if credentials.database != index.spec.database.name or (cluster and not cluster.answers):
            return NOT_INSPECTED
        if isinstance(tls, Problem):
            return Inspection(tls)
        source = DsnText(dsn, tls=tls)
        inspection = await self._inspect(source, index.spec.database.table, index.namespace, _names(index))
        if isinstance(inspection.found, Problem) and inspection.found.reason is Reason.SERVER_NOT_VERIFIED:
            place = ca_secret(index, cluster)
            if place is not None:  # the authority may have rotated
                self.authorities.forget(place)
        return inspection

    async def _peers(self, index: MemoryIndex, database: DatabaseFacts | Problem | None) -> Peers:
        """Return the other MemoryIndex objects that name the table, which are needed to decide who may claim it."""
        if not isinstance(database, DatabaseFacts) or is_claimed_by(index, database):
            return Peers()
        found = await self.objects.naming(index.named_table, self._namespaces or (EVERY_NAMESPACE,))
        others = tuple(peer for peer in found if peer.uid != index.uid)
        claim = holder_to_read(
            index, database, {peer.uid for peer in others}, self._namespaces, kubernetes=await self.objects.kubernetes()
        )
        return Peers(others, holder_exists=await self._exists(claim) if claim else None)

    async def _exists(self, claim: TableClaim) -> bool | None:
        """Return whether the API server has the MemoryIndex of a claim; None if the operator may not read it.

        The cache is not used, because it may not contain all objects yet.
        """
        try:
            found = await self._kube.get("MemoryIndex", claim.namespace, claim.name)
        except KubeError as error:
            if error.refused:
                return None
            raise
        return found is not None and found["metadata"]["uid"] == claim.uid

    async def _children(self, index: MemoryIndex) -> dict[str, list[Manifest]]:
        """Return, by kind, the objects that this MemoryIndex controls, the ReplicaSets of its Deployments, and all pods
        that carry its labels.
        """
        kinds = (*CHILDREN, "Job", "ReplicaSet", "Pod")
        found = await self.objects.children(kinds, index.namespace, index.name)
        own = {kind: [item for item in found[kind] if controller_uid(item) == index.uid] for kind in (*CHILDREN, "Job")}
        deployments = _uids(own["Deployment"])
        made = [item for item in found["ReplicaSet"] if controller_uid(item) in deployments]
        return {**own, "ReplicaSet": made, "Pod": found["Pod"]}

    async def _shared(self, index: MemoryIndex, sync: Manifest | None) -> dict[str, Problem | None]:
        """Return by URL why an embedder of another MemoryIndex must not be used; None if its owner consents.

        The embedders are those that the specification and the sync worker's Deployment name.
        """
        former = configured_embedder(sync) if sync else None
        named = {url: embedder_owner(url) for url in (embedder_url(index), former.url if former else "")}
        own = (index.namespace, index.name)
        return {url: await self._consent_of(index, owner) for url, owner in named.items() if owner and owner != own}

    async def _consent_of(self, index: MemoryIndex, owner: tuple[str, str]) -> Problem | None:
        try:
            found = await self.objects.get("MemoryIndex", *owner)
        except KubeError as error:
            if not error.refused:
                raise
            message = f"The operator may not read MemoryIndex objects of namespace {owner[0]}."
            return Problem(Reason.NOT_PERMITTED, message, "Have it added to watchNamespaces of the operator's chart.")
        return check_embedder_owner(index, owner, parsed(found) if found else None)

    async def _referring(self, index: MemoryIndex, deployments: Container[str] = ()) -> tuple[str, ...]:
        """Return the MemoryIndex objects that use the embedder of this one with its consent, as namespace/name."""
        if not (index.runs_embedder or f"{index.name}-{COMPONENT}" in deployments):
            return ()
        own, namespaces = (index.namespace, index.name), {index.namespace, *index.allowed_namespaces}
        return tuple("/".join(one) for one in await self.objects.referring(own, namespaces))

    async def _referring_to_deleted(self, index: MemoryIndex) -> tuple[str, ...]:
        """Return the same of an object that is being deleted, whose children are read only if it runs no embedder."""
        if index.runs_embedder:
            return await self._referring(index)
        found = await self.objects.children(("Deployment",), index.namespace, index.name)
        return await self._referring(index, {item["metadata"]["name"] for item in found["Deployment"]})

    async def resolved(self, index: MemoryIndex) -> MemoryIndex:
        """Return the object with how its embedder is called, if that is one of the operator's that speaks TLS."""
        return await self._tls.resolved(index)

    async def _specified(
        self,
        index: MemoryIndex,
        secrets: SecretReader,
        consented: Collection[str],
        authorities: Mapping[str, str | Problem],
        deployments: Mapping[str, DeploymentFacts],
    ) -> ReportedModel | Problem | None:
        """Return what an external embedder serves, or what is wrong with the embedder, its API key or its TLS."""
        found = await self._external(index, secrets, consented=consented, authorities=authorities)
        served = deployments.get(f"{index.name}-{COMPONENT}")
        return found or await self._tls.unverified(index, authorities, served)

    async def _external(
        self,
        index: MemoryIndex,
        secrets: SecretReader,
        *,
        consented: Collection[str] = (),
        authorities: Mapping[str, str | Problem] = _NO_COPIES,
    ) -> ReportedModel | Problem | None:
        """Return the model that an external embedder serves, or a problem with the embedder or its API key.

        For any other embedder, only its API key is checked. The result is then a problem with the key, or None.
        """
        key = await self._embedder_key(secrets, index.embedder_key, index.embedder_key_field)
        if isinstance(key, Problem):
            return key
        if index.spec.embedder.external is None:
            return None
        return await self._external_model(index, key, consented, authorities)

    async def _active_external(
        self,
        index: MemoryIndex,
        secrets: SecretReader,
        database: DatabaseFacts | Problem | None,
        sync: Manifest | None,
        *,
        consented: Collection[str] = (),
        authorities: Mapping[str, str | Problem] = _NO_COPIES,
    ) -> ReportedModel | Problem | None:
        """Return the model that the active model's external embedder serves during a swap, or a problem with it.

        The embedder and its API key are those of the sync worker's Deployment. Of an embedder that the operator runs,
        only the API key is checked. The result is then a problem with the key, or None.
        """
        if not isinstance(database, DatabaseFacts) or not needs_swap(index, database):
            return await self._former_key_problem(index, secrets, sync)
        found, former = embedder_of_active(database, sync), before_swap(index, database, sync)
        key = await self._embedder_key(secrets, found.key if found else None, "")
        if isinstance(key, Problem):
            return key
        return await self._external_model(former, key, consented, authorities) if former else None

    async def _external_model(
        self,
        index: MemoryIndex,
        key: str | None,
        consented: Collection[str],
        authorities: Mapping[str, str | Problem],
    ) -> ReportedModel | Problem:
        """Return the model that an external embedder serves, verified by the authority that the object names."""
        named = index.embedder_authority
        place = (index.namespace, named.name, named.key) if isinstance(named, CaSecret) else None
        certificates = await self.authorities.certificates(place, "embedder") if place else ""
        if isinstance(named, CaConfigMap):
            certificates = authorities.get(named.key, "")
        if isinstance(certificates, Problem):
            return certificates
        found = await self._probe.external(index, key, certificates, consented=consented)
        ref = index.spec.embedder.ref
        if ref and isinstance(found, Problem) and found.reason in _SEEN_BY_OWNER:
            found = replace(found, remedy=f"See the status of MemoryIndex {ref.namespace}/{ref.name}.")
        if place and isinstance(found, Problem):  # the authority may have rotated
            self.authorities.forget(place)
        return found

    async def _former_key_problem(
        self, index: MemoryIndex, secrets: SecretReader, sync: Manifest | None
    ) -> Problem | None:
        """Return why the API key that the sync worker mounts may not be used, if the object now names another."""
        found = configured_embedder(sync) if sync else None
        if found is None or found.key is None or found.key == index.embedder_key:
            return None
        return check_secret(index.namespace, await secrets.get(found.key.secret_name), "api-key")

    async def _embedder_key(self, secrets: SecretReader, named: SecretKey | None, field: str) -> str | Problem | None:
        if named is None:
            return None
        secret = await secrets.get(named.secret_name)
        location = f"{secrets.namespace}/{named.secret_name}"
        return check_secret(secrets.namespace, secret, "api-key") or object_facts.api_key(
            secret, location, named.key, named_by=field
        )


def _dsn(index: MemoryIndex, secret: Manifest | None, cluster: ClusterFacts | Problem | None) -> str | Problem:
    own = cluster if isinstance(cluster, ClusterFacts) else None
    problem = check_secret(index.namespace, secret, "dsn", cluster=own)
    return problem or object_facts.secret_value(secret, *_dsn_key(index))


def _dsn_key(index: MemoryIndex) -> tuple[str, str]:
    """Return the place of the connection URI: the Secret as namespace/name, and the key in the Secret."""
    return f"{index.namespace}/{index.secret_name}", index.spec.database.credentials.key


def _names(index: MemoryIndex) -> ColumnNames | None:
    """Return what the table's columns are called; None if a name cannot be used, for which the object is blocked."""
    try:
        return column_names(index)
    except InvalidConfiguration:
        return None


def _pods(children: Mapping[str, list[Manifest]]) -> tuple[PodFacts, ...]:
    controllers = _uids(item for kind in ("Job", "ReplicaSet") for item in children[kind])
    limits = object_facts.memory_limits((*children["Deployment"], *children["Job"]))
    return tuple(object_facts.pod_facts(pod, controllers, limits) for pod in children["Pod"])


def _workers_to_ask(
    index: MemoryIndex, pods: Iterable[PodFacts], database: DatabaseFacts | Problem | None
) -> tuple[PodFacts, ...]:
    """Return the pods of the workers whose metrics say something now: about an API key, or why rows stay pending."""
    asked = {"sync"} if index.embedder_key else set()
    if isinstance(database, DatabaseFacts) and (database.rows.pending or database.rows.without_words):
        asked |= STORING
    if isinstance(database, DatabaseFacts) and database.graph and database.graph.pending:
        asked.add("sync")
    if isinstance(database, DatabaseFacts) and needs_swap(index, database):
        asked.add("swap")
    return tuple(pod for pod in pods if pod.component in asked)


def _uids(manifests: Iterable[Manifest]) -> frozenset[str]:
    return frozenset(item["metadata"].get("uid", "") for item in manifests)
