"""The memory API on a cluster: its database, its Deployment, and programs that use it from inside the network."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

import orjson

from devcluster.cluster import Cluster
from devcluster.demo import objects
from devcluster.demo.cluster import Names
from devcluster.demo.environment import MODEL
from devcluster.install import OPERATOR_NAMESPACE
from devcluster.postgres import Postgres, database_object
from devcluster.retrying import until
from devcluster.settings import REPOSITORY
from tests.client import memories
from tests.client.conversation import Findings, Stored
from tests.client.image import IMAGE

NAMES = Names()
API = "memory-api"
PORT = 8000
URL = f"http://{API}.{NAMES.namespace}.svc:{PORT}"
INDEX = REPOSITORY / "examples" / "claude-memory" / "memoryindex.yaml"
_HAS_VECTOR = "SELECT count(*) FROM pg_extension WHERE extname = 'vector'"
_PRIVATE_VECTORS = "SELECT count(*) FROM memories WHERE is_sensitive AND embedding IS NOT NULL"


@dataclass(frozen=True)
class ApiOnCluster:
    """The memory API beside the Postgres cluster that holds its database."""

    postgres: Postgres

    @property
    def cluster(self) -> Cluster:
        """The Kubernetes cluster."""
        return self.postgres.cluster

    def start(self) -> None:
        """Install pgvector as an administrator does, then start the API, which creates its tables when it starts."""
        self.cluster.apply(database_object(self.postgres, NAMES.database))
        until("pgvector is there", lambda: self.postgres.psql(_HAS_VECTOR, NAMES.database) == "1", seconds=120)
        self.postgres.allow(NAMES.namespace)
        dsn = self.postgres.application_dsn()
        self.cluster.apply(objects.namespace(NAMES.namespace))
        self.cluster.apply(objects.dsn_secret(NAMES.namespace, NAMES.secret, NAMES.secret_key, dsn))
        self.cluster.apply(deployment(), service())
        self.await_rollout(API)

    def index(self) -> None:
        """Apply the MemoryIndex of the example and wait until every row is embedded and the index is valid."""
        self.cluster.kubectl("apply", "-f", str(INDEX))
        self.await_ready()

    def await_ready(self) -> None:
        """Wait until the MemoryIndex is Ready."""
        index = f"memoryindex/{NAMES.index}"
        self._kubectl("wait", "--for=condition=Ready", index, "--timeout=300s", timeout=330)

    def await_rollout(self, name: str, namespace: str = NAMES.namespace) -> None:
        """Wait until all pods of a Deployment are ready."""
        self.cluster.kubectl("-n", namespace, "rollout", "status", f"deployment/{name}", "--timeout=180s", timeout=200)

    def store(self, others: list[str]) -> Stored:
        """Store the memories through the API."""
        made = orjson.loads(self._inside("store", orjson.dumps(others).decode()))
        return Stored(tuple(made["answers"]), made["superseded"], made["successor"])

    def converse(self, stored: Stored) -> Findings:
        """Ask every question through the API."""
        return Findings(**orjson.loads(self._inside("converse", _json(stored))))

    def rows_for_unanswerable(self, prompts: list[str]) -> dict[str, float]:
        """Return the mean number of memories that prompts without an answer get at each level of relevance."""
        return dict(orjson.loads(self._inside("unanswerable", orjson.dumps(prompts).decode())))

    @contextmanager
    def recalled(self, stored: Stored, output: IO[bytes]) -> Iterator["subprocess.Popen[bytes]"]:
        """Recall without end until the block ends; each request becomes a line of `output`."""
        command = _command("load", _json(stored))
        with self.cluster.popen_in_network(command, stdout=output, env=_environment()) as process:
            try:
                yield process
            finally:
                process.terminate()

    def new_primary(self, before: str) -> bool:
        """Return whether the Cluster and its read-write Service both name the same primary, which is not `before`."""
        primary = self.postgres.primary()
        where = ("-n", self.postgres.namespace, "get", "endpoints", f"{self.postgres.name}-rw")
        subsets = self.cluster.kubectl_json(*where).get("subsets") or [{}]
        named = [one.get("targetRef", {}).get("name") for one in subsets[0].get("addresses", [])]
        return primary != before and named == [primary]

    def sensitive_texts(self) -> int:
        """Count words of sensitive memories in the logs of all pods, and vectors of sensitive rows."""
        seen = int(self.postgres.psql(_PRIVATE_VECTORS, NAMES.database))
        for namespace in (NAMES.namespace, OPERATOR_NAMESPACE):
            for pod in self.cluster.kubectl("-n", namespace, "get", "pods", "-o", "name").split():
                log = self.cluster.kubectl("-n", namespace, "logs", pod, "--all-containers", "--ignore-errors")
                seen += sum(log.count(canary) for canary in memories.CANARIES)
        return seen

    def kill(self, namespace: str, *selection: str) -> None:
        """Delete pods without a grace period, so that they end as in a failure of their node."""
        command = ("delete", "pod", "--grace-period=0", "--force", "--wait=false", *selection)
        output = self.cluster.kubectl("-n", namespace, *command)
        if "force deleted" not in output:
            raise RuntimeError(f"there was nothing to kill in {namespace}: {' '.join(selection)}")

    def _inside(self, what: str, given: str) -> str:
        return self.cluster.exec_in_network(_command(what, given), env=_environment(), timeout=300)

    def _kubectl(self, *arguments: str, timeout: float | None = None) -> str:
        return self.cluster.kubectl("-n", NAMES.namespace, *arguments, timeout=timeout)


def deployment() -> dict[str, Any]:
    """Return the Deployment of the API, with the two variables that the change reads."""
    environment = {
        "API_KEYS": orjson.dumps(memories.KEYS).decode(),
        "MEMORY_EMBEDDER_URL": NAMES.embedder_url,
        "MEMORY_MODEL": MODEL,
        "HOME": "/tmp",  # noqa: S108  (an emptyDir of the pod)
    }
    secret = {"secretKeyRef": {"name": NAMES.secret, "key": NAMES.secret_key}}
    container = {
        "name": "api",
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "env": [
            {"name": "DATABASE_URL", "valueFrom": secret},
            *({"name": name, "value": value} for name, value in environment.items()),
        ],
        "ports": [{"containerPort": PORT}],
        "readinessProbe": {"httpGet": {"path": "/health", "port": PORT}, "periodSeconds": 2},
        "resources": {"requests": {"cpu": "500m", "memory": "128Mi"}},
        "securityContext": objects.RESTRICTED,
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108  (as above)
    }
    pod = {
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    labels = {"app.kubernetes.io/name": API}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": API, "namespace": NAMES.namespace, "labels": labels},
        "spec": spec,
    }


def service() -> dict[str, Any]:
    """Return the Service of the API."""
    spec = {"selector": {"app.kubernetes.io/name": API}, "ports": [{"port": PORT}]}
    metadata = {"name": API, "namespace": NAMES.namespace}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def _json(stored: Stored) -> str:
    return orjson.dumps(
        {"answers": stored.answers, "superseded": stored.superseded, "successor": stored.successor}
    ).decode()


def _command(what: str, given: str) -> list[str]:
    return [sys.executable, "-m", "tests.client.inside", what, URL, given]


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(REPOSITORY)}
