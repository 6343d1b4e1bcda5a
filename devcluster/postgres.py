"""Creates Postgres clusters of CloudNativePG, and databases in them that a role of the same name owns.

The module also does what the administrator of the databases does elsewhere. It allows other namespaces to use a
Postgres cluster. For a database that was made after the Postgres cluster, it makes the Database object that names the
owner.
"""

import base64
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from devcluster.cluster import Cluster
from devcluster.errors import CommandError, DevclusterError
from devcluster.progress import Reporter, SilentReporter
from devcluster.retrying import until

_IDENTIFIER = re.compile(r"^[a-z_][a-z0-9_]{0,62}$")
_READY_SECONDS = 600
_ALLOWED_NAMESPACES = "memory-index.dev/allowed-namespaces"
_CLUSTERS = "clusters.postgresql.cnpg.io"
_API = "/apis/postgresql.cnpg.io/v1"


@dataclass(frozen=True)
class Postgres:
    """A handle of a CloudNativePG Postgres cluster."""

    cluster: Cluster
    namespace: str
    name: str

    @property
    def host(self) -> str:
        """DNS name of the primary inside the Kubernetes cluster."""
        return f"{self.name}-rw.{self.namespace}.svc"

    def primary(self) -> str:
        """Return the name of the pod that is the primary now."""
        status = self._resource().get("status", {})
        primary = status.get("currentPrimary")
        if not primary:
            raise DevclusterError(f"{self.namespace}/{self.name} has no primary yet", remedy="wait until it is Ready")
        return str(primary)

    def replicas(self) -> list[str]:
        """Return the names of the pods that are replicas now."""
        return [name for name in self._resource()["status"].get("instanceNames", ()) if name != self.primary()]

    def is_ready(self) -> bool:
        """Return whether all instances are ready and no switch of the primary is under way."""
        resource = self._resource()
        status = resource.get("status", {})
        return (
            status.get("readyInstances") == resource["spec"]["instances"]
            and bool(status.get("currentPrimary"))
            and status.get("currentPrimary") == status.get("targetPrimary")
        )

    def wait_ready(self, seconds: float = _READY_SECONDS) -> None:
        """Wait until all instances are ready, at most `seconds`."""
        what = f"the Postgres cluster {self.namespace}/{self.name} is ready"
        until(what, self.is_ready, seconds=seconds, remedy=f"kubectl -n {self.namespace} describe cluster {self.name}")

    def allow(self, namespace: str) -> None:
        """Let the MemoryIndex objects of another namespace use this Postgres cluster."""
        until(
            f"{self.namespace}/{self.name} allows namespace {namespace}",
            lambda: self._add_namespace(namespace),
            seconds=60,
        )

    def application_dsn(self) -> str:
        """Return the DSN of the database that the Postgres cluster was created with, from CloudNativePG's Secret."""
        secret = self.cluster.kubectl_json("-n", self.namespace, "get", "secret", f"{self.name}-app")
        return base64.b64decode(secret["data"]["uri"]).decode()

    def psql(
        self, sql: str, database: str = "postgres", *, instance: str | None = None, timeout: float | None = None
    ) -> str:
        """Run SQL as superuser and return the rows as unaligned text.

        `instance` is the pod that runs it; the default is the primary. Without an answer within `timeout` seconds it
        fails; the default is no limit.

        The SQL is passed on standard input, so that a password in it appears in no argument list.
        """
        command = (
            "psql",
            "--no-psqlrc",
            "--tuples-only",
            "--no-align",
            "--quiet",
            "--set=ON_ERROR_STOP=1",
            f"--dbname={database}",
        )
        pod = instance or self.primary()
        arguments = ("-n", self.namespace, "exec", "-i", pod, "-c", "postgres", "--", *command)
        return self.cluster.kubectl(*arguments, input=sql, timeout=timeout).strip()

    def _add_namespace(self, namespace: str) -> bool:
        """Allow the namespace to use the Cluster; return False if another program changed the Cluster meanwhile."""
        meta = self._resource()["metadata"]
        names = {*(meta.get("annotations") or {}).get(_ALLOWED_NAMESPACES, "").split(",")} - {""}
        if namespace in names:
            return True
        value = f"{_ALLOWED_NAMESPACES}={','.join(sorted({*names, namespace}))}"
        unchanged = f"--resource-version={meta['resourceVersion']}"
        command = ("-n", self.namespace, "annotate", _CLUSTERS, self.name, "--overwrite", unchanged, value)
        try:
            self.cluster.kubectl(*command)
        except CommandError as error:
            if "modified" not in str(error):
                raise
            return False
        return True

    def _resource(self) -> dict[str, Any]:
        return dict(self.cluster.read(f"{_API}/namespaces/{self.namespace}/clusters/{self.name}"))


def create_postgres(
    cluster: Cluster,
    *,
    namespace: str = "dbaas",
    name: str = "pg-cluster",
    instances: int = 1,
    storage: str = "5Gi",
    image: str | None = None,
    parameters: Mapping[str, str] | None = None,
    database: str | None = None,
    cpu: str = "300m",
    synchronous: int = 0,
    further: Mapping[str, Any] | None = None,
    reporter: Reporter | None = None,
) -> Postgres:
    """Create a Postgres cluster and wait until all its instances are ready.

    CloudNativePG creates `database` with it, owned by a role of the same name. The default name of both is `app`. `cpu`
    is the share of a processor that each instance requests. A commit waits until `synchronous` replicas have it, and no
    replica is promoted that may lack one. `further` are other fields of the Cluster's spec.
    """
    bootstrap = {"bootstrap": {"initdb": {"database": database, "owner": database}}} if database else {}
    quorum = {"method": "any", "number": synchronous, "dataDurability": "required", "failoverQuorum": True}
    waiting = {"synchronous": quorum} if synchronous else {}
    spec = {
        "instances": instances,
        "imageName": image or cluster.postgres_image,
        "imagePullPolicy": "IfNotPresent",
        # Without a share of its own, Postgres starves beside a busy embedder until its liveness probe fails.
        "resources": {"requests": {"cpu": cpu, "memory": "256Mi"}},
        "storage": {"size": storage, **({"storageClass": cluster.storage_class} if cluster.storage_class else {})},
        "postgresql": {"parameters": {"max_connections": "200", **(parameters or {})}, **waiting},
        **bootstrap,
        **(further or {}),
    }
    postgres = Postgres(cluster, namespace, name)
    with (reporter or SilentReporter()).step(f"Postgres cluster {namespace}/{name}, {instances} instance(s)"):
        cluster.await_image("postgresql")
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        cluster.apply(
            {
                "apiVersion": "postgresql.cnpg.io/v1",
                "kind": "Cluster",
                "metadata": {"name": name, "namespace": namespace},
                "spec": spec,
            }
        )
        postgres.wait_ready()
    return postgres


def create_database(cluster: Cluster, postgres: Postgres, name: str) -> str:
    """Create a login role `name` and a database `name` that the role owns; return the DSN to use inside the cluster."""
    if not _IDENTIFIER.fullmatch(name):
        raise DevclusterError(
            f"{name!r} is no plain identifier", remedy="use lower-case letters, digits and underscores"
        )
    password = secrets.token_hex(16)
    inside = Postgres(cluster, postgres.namespace, postgres.name)
    role = f'CREATE ROLE "{name}" LOGIN PASSWORD \'{password}\';\nCREATE DATABASE "{name}" OWNER "{name}";\n'
    # To guess a password of 128 random bits is no easier, and every connection of asyncpg would take 15 ms longer.
    inside.psql(f"SET scram_iterations = 1;\n{role}")
    return f"postgresql://{name}:{password}@{postgres.host}:5432/{name}"


def database_object(postgres: Postgres, name: str) -> dict[str, Any]:
    """Make the Database object by which CloudNativePG installs pgvector in the database `name`.

    The role of the same name owns the database.
    """
    return {
        "apiVersion": "postgresql.cnpg.io/v1",
        "kind": "Database",
        "metadata": {"name": name.replace("_", "-"), "namespace": postgres.namespace},
        "spec": {
            "cluster": {"name": postgres.name},
            "name": name,
            "owner": name,
            "databaseReclaimPolicy": "retain",
            "extensions": [{"name": "vector", "ensure": "present"}],
        },
    }
