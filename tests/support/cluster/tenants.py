"""The namespace and the database of one test in the cluster that all tests share, and what the test does with them.

Namespace, role and database have the same name, so that whatever a failed test leaves behind can be attributed. The
table of memories is created with plain SQL, as the memory server would create it, so that the operator meets a table
that it did not create.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import orjson

from devcluster.cluster import Cluster
from devcluster.demo import follow, objects
from devcluster.demo.environment import DIMENSIONS, MODEL, last_object
from devcluster.demo.scenario import AFTER
from devcluster.demo.verdict import Counts
from devcluster.postgres import Postgres, create_database, database_object
from tests.support.cluster.api import INDEXES
from tests.support.cluster.memories import Row, as_csv
from tests.support.waiting import LONGEST_SECONDS, eventually

INDEX = "mi"
SECRET = "dsn"
KEY = "uri"
DATABASES = "databases.postgresql.cnpg.io"
# The embedders of several tests fit on a node with two processors, and their starts leave one of them to the others.
SMALL = {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}

TABLE = """
CREATE TABLE memories (
    id serial PRIMARY KEY,
    user_id varchar(100) NOT NULL DEFAULT 'default',
    content text NOT NULL,
    category varchar(50) NOT NULL DEFAULT 'facts',
    tags text NOT NULL DEFAULT '',
    expanded_keywords text NOT NULL DEFAULT '',
    importance real NOT NULL DEFAULT 0.5,
    is_sensitive boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    deleted_at timestamptz,
    search_vector tsvector GENERATED ALWAYS AS (
        setweight(to_tsvector('english', content), 'A') || setweight(to_tsvector('english', expanded_keywords), 'B')
        || setweight(to_tsvector('english', tags), 'C') || setweight(to_tsvector('english', category), 'D')) STORED);
CREATE INDEX idx_memories_search ON memories USING gin (search_vector);
"""

# Each iteration is a transaction of its own: an open one would stop the migration that adds the column.
WAIT_EMBEDDED = """
DO $$ DECLARE embedded bigint := 0; started timestamptz := clock_timestamp(); BEGIN LOOP
    IF EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'memories'::regclass AND attname = 'embedding') THEN
        EXECUTE 'SELECT count(embedding) FROM memories' INTO embedded;
    END IF;
    COMMIT;
    EXIT WHEN embedded >= {least};
    IF clock_timestamp() > started + {seconds} * interval '1 second' THEN
        RAISE EXCEPTION '% rows have a vector after {seconds} s', embedded;
    END IF;
    PERFORM pg_sleep(0.02);
END LOOP; END $$;
SELECT count(embedding) FROM memories;
"""


@dataclass
class Tenant:
    """A namespace with a database of the same name."""

    postgres: Postgres
    name: str
    image: str
    dsn: str = field(default="", repr=False)

    @property
    def cluster(self) -> Cluster:
        """The Kubernetes cluster that all tests share."""
        return self.postgres.cluster

    @property
    def database(self) -> str:
        """Name of the database and of its role: the namespace's name as a plain SQL identifier."""
        return self.name.replace("-", "_")

    @property
    def password(self) -> str:
        """The password in the connection string."""
        return str(urlsplit(self.dsn).password)

    # What a test begins with

    def create(self) -> None:
        """Create the namespace, the Postgres cluster's consent, the role, the database and the Secret."""
        self.cluster.apply(objects.namespace(self.name))
        self.postgres.allow(self.name)
        self.dsn = create_database(self.cluster, self.postgres, self.database)
        self.write_secret(self.dsn)

    def write_secret(self, dsn: str) -> None:
        """Write a connection string to the Secret that the MemoryIndex names."""
        self.cluster.apply(objects.dsn_secret(self.name, SECRET, KEY, dsn))

    def store(self, memories: Sequence[Row]) -> None:
        """Create the table of memories as the owner of the database, with these memories."""
        self.as_owner(TABLE)
        self.add(memories)

    def add(self, memories: Sequence[Row]) -> None:
        """Insert memories without vectors, as the memory server does."""
        self.as_owner(f"COPY memories (id, content, is_sensitive) FROM STDIN (FORMAT csv);\n{as_csv(memories)}\\.\n")

    def start_toolbox(self) -> None:
        """Start a pod in which to run the `memory` program, and wait until it is ready."""
        url = f"http://{INDEX}-embedder:8080"
        self.cluster.apply(objects.toolbox(self.name, image=self.image, secret=SECRET, key=KEY, embedder_url=url))
        self.kubectl("wait", "--for=condition=Ready", f"pod/{objects.TOOLBOX}", "--timeout=240s")

    def remove(self) -> None:
        """Remove everything that belongs to the test.

        The MemoryIndex is deleted first, while its Secret and database still exist.
        """
        self.kubectl("delete", "memoryindex", "--all", "--wait", "--timeout=240s")
        self.cluster.kubectl("delete", "namespace", self.name, "--wait=false")
        self.cluster.kubectl("-n", self.postgres.namespace, "delete", DATABASES, self.name, "--ignore-not-found")
        self.postgres.psql(f"DROP DATABASE IF EXISTS {self.database} WITH (FORCE)")

    # What a test does

    def apply_index(self, **changes: Any) -> None:
        """Apply the MemoryIndex, and the Database object that installs pgvector.

        `changes` holds changes of the spec; its keys are paths with two underscores for each dot.
        """
        self.cluster.apply(database_object(self.postgres, self.database), manifest(self, changes))

    def kubectl(self, *arguments: str, input: str | None = None, timeout: float | None = None) -> str:  # noqa: A002 - the handle's own word
        """Run kubectl in the tenant's namespace, for `timeout` seconds at most."""
        return self.cluster.kubectl("-n", self.name, *arguments, input=input, timeout=timeout)

    def memory(
        self, *arguments: str, stdin: str | None = None, settings: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Run `memory` with these arguments and `--json` in the toolbox pod; return the JSON object that it prints.

        `settings` are further environment variables of the program.
        """
        given = ["env", *(f"{name}={value}" for name, value in settings.items())] if settings else []
        command = ("exec", "-i", objects.TOOLBOX, "--", *given, "memory", *arguments, "--json")
        return last_object(self.kubectl(*command, input=stdin or ""))

    def sql(self, statement: str) -> str:
        """Run a statement in the tenant's database as superuser, on the primary."""
        return self.postgres.psql(statement, self.database)

    def as_owner(self, script: str, *, timeout: float | None = None) -> str:
        """Run SQL as the role that owns the tenant's database, for `timeout` seconds at most."""
        return self.postgres.psql(f"SET ROLE {self.database};\n{script}", self.database, timeout=timeout)

    # What a test reads

    def index(self) -> dict[str, Any]:
        """Return the tenant's MemoryIndex."""
        return dict(self.cluster.read(f"{INDEXES}/namespaces/{self.name}/memoryindexes/{INDEX}"))

    def view(self) -> follow.View:
        """Return a view of the status of the tenant's MemoryIndex."""
        return follow.view(self.index())

    def counts(self) -> Counts:
        """Count the rows of the table by state."""
        return Counts(**orjson.loads(self.sql(" ".join(AFTER.split()))))

    def embedded(self) -> int:
        """Count the rows with a vector; 0 if the table has no vector column yet."""
        has_column = "SELECT 1 FROM pg_attribute WHERE attrelid = 'memories'::regclass AND attname = 'embedding'"
        return int(self.sql("SELECT count(embedding) FROM memories")) if self.sql(has_column) else 0

    def wait_embedded(self, least: int, seconds: float = LONGEST_SECONDS) -> int:
        """Wait until at least `least` rows have a vector, and return the number of such rows.

        A loop inside Postgres waits, so that the end is noticed without the delay of polling from outside.
        """
        return int(self.sql(WAIT_EMBEDDED.format(least=least, seconds=seconds)))

    def wait_ready(self, seconds: float = LONGEST_SECONDS) -> follow.View:
        """Wait until the tenant's MemoryIndex is Ready, and return a view of its status."""
        return eventually(self.view, lambda seen: seen.ready, what=f"{self.name} Ready", seconds=seconds)

    def wait_condition(
        self, kind: str, reason: str, *, status: str = "False", seconds: float = LONGEST_SECONDS
    ) -> follow.Condition:
        """Wait until the condition `kind` has this status and reason, and return it."""
        seen = eventually(
            self.view,
            lambda view: (view.condition(kind).status, view.condition(kind).reason) == (status, reason),
            what=f"{kind}={status} {reason}",
            seconds=seconds,
        )
        return seen.condition(kind)


def metrics(tenant: Tenant, component: str, port: int) -> str:
    """Return the metrics page of a component's pod in the tenant's namespace, read through the API server."""
    label = f"app.kubernetes.io/component={component}"
    pod = tenant.kubectl("get", "pods", "-l", label, "-o", "jsonpath={.items[0].metadata.name}")
    return tenant.cluster.kubectl("get", "--raw", f"/api/v1/namespaces/{tenant.name}/pods/{pod}:{port}/proxy/metrics")


def manifest(tenant: Tenant, changes: dict[str, Any]) -> objects.Object:
    """Return a MemoryIndex with an embedder on the CPU, with the given changes of its spec.

    The keys of `changes` are paths below spec with two underscores for each dot.
    """
    spec: dict[str, Any] = {
        "database": {
            "cluster": {"name": tenant.postgres.name, "namespace": tenant.postgres.namespace},
            "name": tenant.database,
            "credentials": {"secretName": SECRET, "key": KEY},
        },
        "embedding": {"model": MODEL, "dimensions": DIMENSIONS},
        "embedder": {"gpuLayers": 0, "resources": SMALL},
    }
    spec = copy.deepcopy(spec)
    for path, value in changes.items():
        node = spec
        *parents, last = path.split("__")
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = value
    return {
        "apiVersion": "memory-index.dev/v1alpha1",
        "kind": "MemoryIndex",
        "metadata": {"name": INDEX, "namespace": tenant.name},
        "spec": spec,
    }
