"""The observed facts from which one reconcile decides.

The types are frozen and have no behaviour except small derived properties. They hold no secrets: of a connection URI
they hold only the names of database and role, and the ports. Therefore no decision, status or log that is built from
them can contain a password.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Self

from memory_operator.api.reasons import Reason
from memory_operator.api.spec import Manifest, MemoryIndex, text_in
from memory_operator.resources.choices import Choice
from memory_operator.resources.cnpg import DatabaseObject
from memory_operator.resources.drift import Admission
from memory_operator.resources.worker_pods import ConfiguredEmbedder
from memory_recall.status import DatabaseFacts


@dataclass(frozen=True)
class Problem:
    """The reason why something is unavailable or invalid; its message contains neither secrets nor memory text."""

    reason: Reason
    message: str
    remedy: str = ""


@dataclass(frozen=True)
class RoleCertificate:
    """The certificate by which a role logs in: where it is, of which user it is, and when it is valid."""

    location: str
    user: str
    not_before: datetime
    not_after: datetime


@dataclass(frozen=True)
class Credentials:
    """The parts of a connection URI that are no secret; `ports` are those of its servers.

    `certificate` is the one by which its role logs in; None if it has a password.
    """

    database: str
    ports: tuple[int, ...] = (5432,)
    role: str = ""
    certificate: RoleCertificate | None = None


@dataclass(frozen=True)
class ApplicationDatabase:
    """The database that a CloudNativePG Cluster was created with, and the owner that the Cluster names for it."""

    name: str
    owner: str


@dataclass(frozen=True)
class ClusterFacts:
    """The known facts about a CloudNativePG Cluster.

    Attributes:
        phase: CloudNativePG's word for the state of the Cluster; `phase_reason` is what it says about it.
        system_id: the system identifier that its instances report; empty while no instance reports one.
        allowed_namespaces: the other namespaces whose MemoryIndex objects may use this Cluster.
        ca_secret: the Secret in the Cluster's namespace with the authority that signs the servers' certificates.
        addresses: the IP addresses of its instances; empty where CloudNativePG does not report them.
    """

    namespace: str
    name: str
    uid: str = ""
    system_id: str = ""
    allowed_namespaces: frozenset[str] = frozenset()
    addresses: frozenset[str] = frozenset()
    application: ApplicationDatabase | None = None
    phase: str = ""
    phase_reason: str = ""
    healthy: bool = True
    hibernated: bool = False
    replica: bool = False
    reconciliation_disabled: bool = False
    ca_secret: str = ""

    def __str__(self) -> str:
        return f"Cluster {self.namespace}/{self.name}"

    @property
    def answers(self) -> bool:
        """Return whether the Cluster should answer and accept writes: it is neither hibernated nor a replica."""
        return not (self.hibernated or self.replica)


class JobState(StrEnum):
    """Whether a Job still runs, or how it ended."""

    ACTIVE = "Active"
    COMPLETE = "Complete"
    FAILED = "Failed"


@dataclass(frozen=True)
class JobFacts:
    """One Job of the operator.

    Attributes:
        failure: the problem that its last failed pod reported.
        suspended: whether Kubernetes makes no pods for it until somebody resumes it.
        stopped: whether the operator has suspended it, because what it needs is no longer permitted.
        sends_to: the embedders that its pods may send texts to.
        secrets: the names of the Secrets that its pods mount.
        choices: what the author has chosen for its pods that takes a permission.
        failed_pods: how many of its pods have failed.
        without_pod_since: the time since which it has been observed without a pod that could run; None if it has one,
            or needs none because it has ended, is suspended or is being deleted.
    """

    name: str
    component: str
    config: str
    sequence: int
    state: JobState
    finished_at: datetime | None = None
    failure: Problem | None = None
    deleting: bool = False
    uid: str = ""
    suspended: bool = False
    stopped: bool = False
    sends_to: frozenset[ConfiguredEmbedder] = frozenset()
    secrets: frozenset[str] = frozenset()
    choices: tuple[Choice, ...] = ()
    failed_pods: int = 0
    without_pod_since: datetime | None = None
    created_at: datetime | None = None


@dataclass(frozen=True)
class PodFacts:
    """A pod of the operator.

    Attributes:
        running: whether its containers have started.
        controlled: whether a Deployment or Job of the MemoryIndex has made it. Its labels alone do not say so, because
            whoever may create pods can give a pod any labels.
        problem: why they have not.
        unprepared_since: the time since which the pod has had a node without its volumes and network being ready; None
            if they are ready, or if Kubernetes does not tell, as before its version 1.29.
        choices: what the author has chosen for it that takes a permission.
        ending_since: the time since which it should have ended, because it is deleted and its grace period is over, or
            because its own container has ended; None if it should run on, or has ended.
        unready_since: the time since which the pod has run without being ready; None if it is ready or does not run.
    """

    name: str
    component: str
    ip: str | None = None
    running: bool = False
    ended: bool = False
    deleting: bool = False
    controlled: bool = False
    problem: Problem | None = None
    created_at: datetime | None = None
    unprepared_since: datetime | None = None
    choices: tuple[Choice, ...] = ()
    ending_since: datetime | None = None
    unready_since: datetime | None = None


@dataclass(frozen=True)
class ReportedModel:
    """The model that an embedder says it serves, at its pod or address (`location`). An unknown field is None."""

    location: str
    digest: str | None = None
    pooling: str | None = None


@dataclass(frozen=True)
class EmbedderLoad:
    """What one embedder pod reports about itself."""

    pod: str
    queued_tokens: float = 0.0
    tokens_per_second: float = 0.0
    device: str | None = None
    gpu_layers_offloaded: int | None = None
    model: ReportedModel | None = None
    certificate_fault: str | None = None


@dataclass(frozen=True)
class WorkerReport:
    """What the pods of an object's workers report: a lost or refused API key of the embedder, and a full disk."""

    key_refused: bool = False
    disk_full: bool = False


@dataclass(frozen=True)
class ServingCertificate:
    """The certificate in the Secret of an embedder: where it is, and for which hosts and when it is valid."""

    location: str
    hosts: tuple[str, ...]
    not_before: datetime
    not_after: datetime


@dataclass(frozen=True)
class DeploymentFacts:
    """The replicas of a Deployment.

    `replicas` is the desired number of pods, `total` is the number of existing pods, and `updated` is the number of
    existing pods with the latest template. `current` is True once no pod of an older template is left. `failure` says
    why a pod cannot be created. `paused` says that somebody has paused its roll-outs. `image` is the image of the first
    container. `stopped_at` is the number of pods that an embedder had before the operator stopped it for want of a
    permission; None if it was not stopped.
    """

    replicas: int
    ready: int
    current: bool
    failure: str = ""
    total: int = 0
    updated: int = 0
    deadline_exceeded: bool = False
    paused: bool = False
    image: str = ""
    stopped_at: int | None = None

    @property
    def updated_and_ready(self) -> int:
        """The least number of pods of the latest template that must be ready, judged from the counts alone.

        It is the number of ready pods minus the number of pods of older templates, all of which may be ready.
        """
        return max(0, self.ready - (self.total - self.updated))


@dataclass(frozen=True)
class Recommendation:
    """How many embedder pods were needed at one moment."""

    at: datetime
    replicas: int


@dataclass(frozen=True)
class Inspection:
    """What the database answered, and the seconds that its queries took; `found` is None if it was not queried."""

    found: DatabaseFacts | Problem | None
    query_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Peer:
    """What a MemoryIndex says about its table, as far as it decides to which of several objects the table belongs.

    One is kept in memory for each object, so it is small. `named_table`, `cluster` and `system_identifier` are those of
    `MemoryIndex`. `table_schema` is the schema in which the table was found; None if it was
    never read.
    """

    namespace: str
    name: str
    uid: str
    created_at: datetime
    deleted: bool
    named_table: tuple[str, str]
    cluster: tuple[str, str] | None
    system_identifier: str
    table_schema: str | None

    @classmethod
    def of(cls, index: MemoryIndex) -> Self:
        """Return what this MemoryIndex says."""
        return cls(
            namespace=index.namespace,
            name=index.name,
            uid=index.uid,
            created_at=index.created_at,
            deleted=index.deleted_at is not None,
            named_table=index.named_table,
            cluster=index.cluster,
            system_identifier=index.system_identifier,
            table_schema=text_in(index.status, "database", "tableSchema"),
        )


@dataclass(frozen=True)
class Peers:
    """The other MemoryIndex objects that name the same table, in the namespaces that the operator reads.

    Attributes:
        objects: those that are known so far and whose specification this operator can parse.
        holder_exists: whether the API server has the MemoryIndex that the claim on the table names, if it was asked;
            None if it was not asked, or if the operator may not read that object.
    """

    objects: tuple[Peer, ...] = ()
    holder_exists: bool | None = None


@dataclass(frozen=True)
class Observed:
    """All observed facts from which one reconcile decides.

    Attributes:
        loads: what the embedder's pods report about themselves.
        next_loads: the same of the pods of the next model's embedder during a swap.
        peers: read only if the database does not record that the table belongs to this object.
        query_seconds: the time that the queries of this observation took in the database.
        unreachable_since: the time since which the database has not answered; None if it does.
        idle_since: the time since which no pending row has been embedded; None if no row is pending.
        graph_idle_since: the time since which the sync worker, although it should run, has dealt with none of the
            changes that are pending for the concept graph; None if none are.
        rollout_admitted: whether a new default image of the embedder may be rolled out now.
        key_refused: whether the sync worker reports that its embedder's API key is lost or refused.
        disk_full: whether a worker reports that the disk of the database is full.
        refused_keys: the Secrets that the existing embedders mount as API keys and must not, by name.
        external: what an external embedder serves, or what is wrong with it or with the Secret of the API key.
        active_external: the same of the active model's external embedder during a swap; only a problem with the Secret
            if the operator runs that embedder; None if there is none, or if it was not asked.
        reference: why the embedder that `spec.embedder.ref` names must not be used; None if it may be.
        consented_hosts: the hosts of embedders of other MemoryIndex objects that consent to their use by this one. Only
            those are known that its specification or its sync worker names.
        referring: the other MemoryIndex objects that use the embedder of this one, as namespace/name, in order.
        database_ca: the certificates of the authority that the database server is verified by; empty if none are used.
        certificate: the certificate in the Secret that `spec.embedder.tls` names, or what is wrong with that Secret;
            None if the operator runs no embedder with TLS.
        embedder_authorities: the certificates that verify the embedders with TLS which the operator runs and workers
            call, by their key in the ConfigMap of the copies; a problem if they cannot be read at the moment.
        operator_namespace: where the operator itself runs; empty if it runs outside the cluster.
        admissions: by kind and name, how the API server changed what the operator sent for its objects, where known.
        kubernetes: the uid of the namespace kube-system, which identifies the Kubernetes cluster.
    """

    credentials: Credentials | Problem
    cluster: ClusterFacts | Problem | None = None
    database_objects: tuple[DatabaseObject, ...] = ()
    database: DatabaseFacts | Problem | None = None
    jobs: tuple[JobFacts, ...] = ()
    pods: tuple[PodFacts, ...] = ()
    embedder: DeploymentFacts | None = None
    next_embedder: DeploymentFacts | None = None
    sync: DeploymentFacts | None = None
    external: ReportedModel | Problem | None = None
    active_external: ReportedModel | Problem | None = None
    reference: Problem | None = None
    consented_hosts: frozenset[str] = frozenset()
    referring: tuple[str, ...] = ()
    loads: tuple[EmbedderLoad, ...] = ()
    next_loads: tuple[EmbedderLoad, ...] = ()
    key_refused: bool = False
    disk_full: bool = False
    refused_keys: Mapping[str, Problem] = field(default_factory=dict)
    children: Mapping[tuple[str, str], Manifest] = field(default_factory=dict)
    admissions: Mapping[tuple[str, str], Admission] = field(default_factory=dict)
    recommendations: tuple[Recommendation, ...] = ()
    rows_per_second: float | None = None
    peers: Peers = Peers()
    query_seconds: float = 0.0
    unreachable_since: datetime | None = None
    idle_since: datetime | None = None
    graph_idle_since: datetime | None = None
    rollout_admitted: bool = True
    database_ca: str = ""
    certificate: ServingCertificate | Problem | None = None
    embedder_authorities: Mapping[str, str | Problem] = field(default_factory=dict)
    operator_namespace: str = ""
    kubernetes: str = ""

    def jobs_of(self, component: str) -> tuple[JobFacts, ...]:
        """Return the Jobs of one component, oldest first."""
        return tuple(sorted((job for job in self.jobs if job.component == component), key=lambda job: job.sequence))

    def pods_of(self, component: str) -> tuple[PodFacts, ...]:
        """Return the pods of one component."""
        return tuple(pod for pod in self.pods if pod.component == component)

    @property
    def is_unreachable(self) -> bool:
        """Whether the database was connected to and did not answer."""
        return isinstance(self.database, Problem) and self.database.reason is Reason.DATABASE_UNREACHABLE

    @property
    def database_facts(self) -> DatabaseFacts | None:
        """The catalog facts of the database, or None if it did not answer."""
        return self.database if isinstance(self.database, DatabaseFacts) else None


@dataclass(frozen=True)
class DeletionFacts:
    """The facts on which the deletion of a MemoryIndex depends.

    Attributes:
        database_objects: the operator's Database objects for the MemoryIndex; None if the operator may not read them.
        referring: the other MemoryIndex objects that use the embedder of this one, as namespace/name, in order.
        namespace_terminating: whether the MemoryIndex's namespace is being deleted, so that no Job can start there.
        observed: all facts, if the migrations are to be undone, a concept graph may have to be paused or a swap to be
            given up, or others use the embedder, and the namespace stays; None in any other case, and if the operator
            may not read what is needed for a pause or for giving a swap up.
        undoing_since: the time since which this process has tried to undo what is to be undone; None if it begins now,
            or if the deletion waits for others.
    """

    database_objects: tuple[DatabaseObject, ...] | None
    referring: tuple[str, ...] = ()
    namespace_terminating: bool = False
    observed: Observed | None = None
    undoing_since: datetime | None = None
