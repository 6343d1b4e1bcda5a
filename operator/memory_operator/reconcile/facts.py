"""The facts that one reconcile decides from.

They are frozen, have no behaviour beyond small derived properties, and hold no secrets: a connection URI is reduced to
its user and database before it reaches these types, so that no decision, status or log built from them can
contain a password.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from memory_operator.api.reasons import Reason
from memory_operator.api.spec import Manifest
from memory_operator.resources.cnpg import DatabaseObject
from memory_recall.status import NO_ROWS, RowCounts


@dataclass(frozen=True)
class Problem:
    """Why something is unavailable or wrong; the message holds neither secrets nor memory text."""

    reason: Reason
    message: str
    remedy: str = ""


@dataclass(frozen=True)
class Credentials:
    """The parts of a connection URI that are not secret."""

    user: str
    database: str


@dataclass(frozen=True)
class ClusterFacts:
    """A CloudNativePG Cluster."""

    namespace: str
    name: str
    phase: str = ""
    healthy: bool = True
    hibernated: bool = False
    replica: bool = False
    reconciliation_disabled: bool = False

    def __str__(self) -> str:
        return f"Cluster {self.namespace}/{self.name}"

    @property
    def answers(self) -> bool:
        """Return whether the Cluster can be expected to serve a database that may be written."""
        return not (self.hibernated or self.replica)


@dataclass(frozen=True)
class DatabaseFacts:
    """What the database's catalog says; `index_parameters` is (m, efConstruction) of an index that we built.

    `wanted_at` is when a recall last missed the embedder.
    """

    server_version: str = ""
    extension_version: str | None = None
    extension_available: str | None = None
    schema_revision: str | None = None
    schema_current: bool = False
    schema_ahead: bool = False
    schema_differences: str = ""
    column_dimensions: int | None = None
    active_model: str | None = None
    active_digest: str | None = None
    active_pooling: str | None = None
    active_url: str | None = None
    next_model: str | None = None
    swap_stage: str | None = None
    swap_message: str = ""
    rows: RowCounts = NO_ROWS
    index_valid: bool = False
    index_progress: float | None = None
    index_parameters: tuple[int, int] | None = None
    owner: str | None = None
    wanted_at: datetime | None = None


class JobState(StrEnum):
    """Whether a Job runs or how it ended."""

    ACTIVE = "Active"
    COMPLETE = "Complete"
    FAILED = "Failed"


@dataclass(frozen=True)
class JobFacts:
    """One of our Jobs; `failure` is what its last failed pod reported."""

    name: str
    component: str
    config: str
    sequence: int
    state: JobState
    finished_at: datetime | None = None
    failure: Problem | None = None
    deleting: bool = False


@dataclass(frozen=True)
class PodFacts:
    """One of our pods; `problem` is what keeps it from running."""

    name: str
    component: str
    ip: str | None = None
    ended: bool = False
    deleting: bool = False
    problem: Problem | None = None
    created_at: datetime | None = None


@dataclass(frozen=True)
class ServedModel:
    """What an embedder serves; `location` names its pod or its address, and None is not known."""

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
    model: ServedModel | None = None


@dataclass(frozen=True)
class DeploymentFacts:
    """The replicas of a Deployment; `current` once no pod of an older template is left.

    `updated` is the number of pods of the latest template, `failure` why a pod cannot be created, and `image` the
    first container's.
    """

    replicas: int
    ready: int
    current: bool
    failure: str = ""
    updated: int = 0
    deadline_exceeded: bool = False
    image: str = ""


@dataclass(frozen=True)
class Recommendation:
    """How many embedder pods were needed at one moment."""

    at: datetime
    replicas: int


@dataclass(frozen=True)
class Observed:
    """Everything that one reconcile decides from.

    `idle_since` is the moment since which rows are pending and none is embedded. `rollout_admitted` says whether a new
    default image may be rolled out now.
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
    external: ServedModel | Problem | None = None
    loads: tuple[EmbedderLoad, ...] = ()
    children: Mapping[tuple[str, str], Manifest] = field(default_factory=dict)
    recommendations: tuple[Recommendation, ...] = ()
    rows_per_second: float | None = None
    idle_since: datetime | None = None
    rollout_admitted: bool = True

    def jobs_of(self, component: str) -> tuple[JobFacts, ...]:
        """Return the Jobs of one component, oldest first."""
        return tuple(sorted((job for job in self.jobs if job.component == component), key=lambda job: job.sequence))

    def pods_of(self, component: str) -> tuple[PodFacts, ...]:
        """Return the pods of one component."""
        return tuple(pod for pod in self.pods if pod.component == component)

    @property
    def database_facts(self) -> DatabaseFacts | None:
        """The facts of the catalog, or None where the database did not answer."""
        return self.database if isinstance(self.database, DatabaseFacts) else None
