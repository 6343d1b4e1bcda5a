"""Defines a situation, what is expected in it, and the namespace and table in which it is created."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from devcluster.cluster import Cluster
from devcluster.demo import objects
from devcluster.postgres import Postgres, create_database
from memory_operator.api.spec import ANNOTATION_RECONCILE_AT
from tests.support.cluster.api import INDEXES, Object
from tests.support.cluster.platform import Platform
from tests.support.gitops.kstatus import Kstatus

NAME, SECRET, KEY, DATABASE = "mi", "dsn", "uri", "situations"
COLUMNS = """(
    id serial PRIMARY KEY, content text NOT NULL, is_sensitive boolean NOT NULL DEFAULT false, deleted_at timestamptz
)"""  # of a table of memories, as few as the migrations accept
WRITTEN_CLUSTERS = "written"  # the namespace of Clusters that CloudNativePG does not see


@dataclass(frozen=True)
class Expected:
    """What the status of a MemoryIndex must say in a situation.

    The status must say this soon after the situation is created or, if `late` is set, after more than 120 seconds.
    `reasons` are the permitted reasons of the condition Ready. `serves` says whether dense search really works and new
    rows get vectors. If `serves` is false, Ready must not be True.
    """

    name: str
    kstatus: Kstatus
    reasons: tuple[str, ...]
    ready: str = "False"
    late: bool = False
    serves: bool = False


@dataclass(frozen=True)
class Stage:
    """The resources that all situations share: the platform, a database, and a second Postgres cluster."""

    platform: Platform
    dsn: str
    other: Postgres

    @property
    def cluster(self) -> Cluster:
        """The Kubernetes cluster."""
        return self.platform.cluster


@dataclass(frozen=True)
class Place:
    """The namespace and the table of one situation."""

    stage: Stage
    key: str

    @property
    def namespace(self) -> str:
        """Name of the situation's namespace."""
        return f"sit-{self.key}"

    @property
    def table(self) -> str:
        """Name of the situation's table in the database that all situations share."""
        return "t_" + self.key.replace("-", "_")

    @property
    def collection(self) -> str:
        """Path of the namespace's MemoryIndex objects at the API server."""
        return f"{INDEXES}/namespaces/{self.namespace}/memoryindexes"

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl in the situation's namespace."""
        return self.stage.cluster.kubectl("-n", self.namespace, *arguments, input=stdin)

    def patch(self, spec: Object) -> None:
        """Change fields of the spec of the situation's MemoryIndex."""
        self.kubectl("patch", "memoryindex", NAME, "--type=merge", f"--patch={json.dumps({'spec': spec})}")

    def reconcile_now(self) -> None:
        """Have the operator look at the situation's MemoryIndex at once."""
        self.kubectl("annotate", "memoryindex", NAME, "--overwrite", f"{ANNOTATION_RECONCILE_AT}={time.time():.3f}")

    def sql(self, statements: str, database: str = DATABASE) -> str:
        """Run SQL as superuser on the Postgres server that the situations share."""
        return self.stage.platform.postgres.psql(statements, database)

    def write_dsn(self, dsn: str, key: str = KEY) -> None:
        """Write a connection string to the Secret that the situation's MemoryIndex names."""
        self.stage.cluster.apply(objects.dsn_secret(self.namespace, SECRET, key, dsn))

    def create_database(self) -> None:
        """Create a database for this situation alone, and write its connection string to the Secret.

        The name of the database is the value of `table`.
        """
        self.write_dsn(create_database(self.stage.cluster, self.stage.platform.postgres, self.table))

    def apply(self, kind: str, spec: Object, *, version: str = "v1", name: str = "situation") -> None:
        """Apply an object of the given kind and API version in the situation's namespace."""
        meta = {"name": name, "namespace": self.namespace}
        self.stage.cluster.apply({"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec})


Change = Callable[[Place], None]


@dataclass(frozen=True)
class Situation:
    """The steps that create a situation, and the expectations about the status of the MemoryIndex in it.

    `spec` holds changes of the MemoryIndex's spec; its keys are paths with two underscores for each dot. `prepare` runs
    before the MemoryIndex is created. If `filled` is set, the table and its embedded rows exist before the operator
    acts. If `settled` is set, the table is filled too, and the MemoryIndex is Ready before `disturb` runs. If `written`
    is set, the situation and not CloudNativePG writes the status of the Cluster. If `own_database` is set, the
    situation has a database of its own, without pgvector. `observed` is the name of the MemoryIndex whose status is
    compared.
    """

    key: str
    expected: tuple[Expected, ...]
    spec: Mapping[str, Any] = field(default_factory=dict)
    prepare: Change | None = None
    disturb: Change | None = None
    filled: bool = False
    settled: bool = False
    written: bool = False
    own_database: bool = False
    observed: str = NAME


def missing(name: str, reason: str) -> tuple[Expected, Expected]:
    """Expect InProgress for 120 seconds and Failed after that, because somebody may still create what is missing."""
    return (
        Expected(f"{name}, not yet", Kstatus.IN_PROGRESS, (reason,)),
        Expected(f"{name}, for two minutes", Kstatus.FAILED, (reason,), late=True),
    )


def refused(name: str, reason: str, *, serves: bool = False) -> tuple[Expected, ...]:
    """Expect the kstatus Failed, because a person must act."""
    return (Expected(name, Kstatus.FAILED, (reason,), serves=serves),)


def waiting(name: str, *reasons: str, serves: bool = False) -> tuple[Expected, ...]:
    """Expect the kstatus InProgress, because the operator works or waits for something that comes by itself."""
    return (Expected(name, Kstatus.IN_PROGRESS, reasons, serves=serves),)


def ready(name: str, reason: str = "Ready", *, late: bool = False) -> tuple[Expected, ...]:
    """Expect the kstatus Current and Ready, because everything works."""
    return (Expected(name, Kstatus.CURRENT, (reason,), "True", late=late, serves=True),)
