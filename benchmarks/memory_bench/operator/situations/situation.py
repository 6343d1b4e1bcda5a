"""What a situation is, and the place in which it is made: a namespace with a table of its own."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from devcluster.cluster import Cluster
from devcluster.demo import objects
from devcluster.postgres import Postgres, create_database
from memory_bench.operator.api import INDEXES, Object
from memory_bench.operator.platform import Platform
from memory_bench.operator.situations.kstatus import Kstatus

NAME, SECRET, KEY, DATABASE = "mi", "dsn", "uri", "situations"
WRITTEN_CLUSTERS = "written"  # the namespace of Clusters that CloudNativePG does not see


@dataclass(frozen=True)
class Expected:
    """What the status must say soon after the situation came about or, if `late`, more than 120 seconds after it.

    `reasons` are those that Ready may have. `serves` says whether a recall by meaning works and a new row gets its
    vector, which is true outside of the operator; Ready may be True only there.
    """

    name: str
    kstatus: Kstatus
    reasons: tuple[str, ...]
    ready: str = "False"
    late: bool = False
    serves: bool = False


@dataclass(frozen=True)
class Stage:
    """What all places share: the platform, a connection string to the common database, and a second Postgres."""

    platform: Platform
    dsn: str
    other: Postgres

    @property
    def cluster(self) -> Cluster:
        """The Kubernetes cluster."""
        return self.platform.cluster


@dataclass(frozen=True)
class Place:
    """The namespace of one situation."""

    stage: Stage
    key: str

    @property
    def namespace(self) -> str:
        """Name of the namespace."""
        return f"sit-{self.key}"

    @property
    def table(self) -> str:
        """Name of the table in the common database."""
        return "t_" + self.key.replace("-", "_")

    @property
    def collection(self) -> str:
        """Path of the namespace's objects at the API server."""
        return f"{INDEXES}/namespaces/{self.namespace}/memoryindexes"

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl in the namespace."""
        return self.stage.cluster.kubectl("-n", self.namespace, *arguments, input=stdin)

    def patch(self, spec: Object) -> None:
        """Change the object's specification."""
        self.kubectl("patch", "memoryindex", NAME, "--type=merge", f"--patch={json.dumps({'spec': spec})}")

    def sql(self, statements: str, database: str = DATABASE) -> str:
        """Run SQL as superuser on the common server."""
        return self.stage.platform.postgres.psql(statements, database)

    def write_dsn(self, dsn: str, key: str = KEY) -> None:
        """Write a connection string to the Secret that the object names."""
        self.stage.cluster.apply(objects.dsn_secret(self.namespace, SECRET, key, dsn))

    def create_database(self) -> None:
        """Create a database for this situation alone, called like the table elsewhere, and lead the Secret to it."""
        self.write_dsn(create_database(self.stage.cluster, self.stage.platform.postgres, self.table))

    def apply(self, kind: str, spec: Object, *, version: str = "v1", name: str = "situation") -> None:
        """Apply an object of another kind in the namespace."""
        meta = {"name": name, "namespace": self.namespace}
        self.stage.cluster.apply({"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec})


Change = Callable[[Place], None]


@dataclass(frozen=True)
class Situation:
    """How a situation is made, and what is expected of it.

    `spec` are dotted paths below spec, written with two underscores for the dot. `prepare` runs before the object is
    created. `filled` gives it a table of embedded rows, as its Jobs would have made it. A `settled` object has one
    and is Ready before `disturb` runs. `written` says that the Cluster's status is the benchmark's and not
    CloudNativePG's. With an `own_database` the object's database is one without pgvector. `observed` is the judged
    object's name.
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
    """Expect what others may still deliver: in progress at first, failed after 120 seconds."""
    return (
        Expected(f"{name}, not yet", Kstatus.IN_PROGRESS, (reason,)),
        Expected(f"{name}, for two minutes", Kstatus.FAILED, (reason,), late=True),
    )


def refused(name: str, reason: str, *, serves: bool = False) -> tuple[Expected, ...]:
    """Expect that a person must act."""
    return (Expected(name, Kstatus.FAILED, (reason,), serves=serves),)


def waiting(name: str, *reasons: str, serves: bool = False) -> tuple[Expected, ...]:
    """Expect that the operator works, or waits for what comes by itself."""
    return (Expected(name, Kstatus.IN_PROGRESS, reasons, serves=serves),)


def ready(name: str, reason: str = "Ready", *, late: bool = False) -> tuple[Expected, ...]:
    """Expect that everything works."""
    return (Expected(name, Kstatus.CURRENT, (reason,), "True", late=late, serves=True),)
