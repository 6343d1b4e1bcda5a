"""Every command of the runbooks is executed, each page in the situation that it is for, on one cluster.

The pages are executed in one order, since each begins where the one before it has left off. The restored Cluster is a
physical copy that CloudNativePG makes by streaming from another one, because the development cluster has no object
store; for the operator it is what a recovered backup is: the same server identity, at an earlier time. The Backup that
the page looks for is an object alone, for the same reason, and PostgreSQL archives to nowhere.
"""

import base64
import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

import devcluster
from devcluster.cluster import Cluster
from devcluster.demo.environment import DIMENSIONS, MODEL
from devcluster.images.project import ProjectImages
from devcluster.postgres import Postgres, create_postgres, database_object
from devcluster.settings import REPOSITORY
from memory_embedder.models.profiles import PROFILES
from tests.delivery.pages import Page, read_page, run_page
from tests.support.cluster.memories import rows
from tests.support.cluster.tenants import INDEX, KEY, SECRET, Tenant, manifest
from tests.support.waiting import eventually

PAGES = {
    path.stem: read_page(path) for path in (REPOSITORY / "docs" / "runbooks").glob("*.md") if path.stem != "README"
}
ORDER = (
    "install",
    "quarantine",
    "rotated-password",
    "gpu-lost",
    "failover",
    "stuck",
    "swap",
    "restore",
    "another-cluster",
    "upgrade",
    "uninstall",
)
MEMORIES = rows(20)
COPY = "pg-copy"
FORMER_UID = "0f4b7a2e-9c1d-4f6e-8a35-6d2b9e7c1a50"
SEAT = {"nvidia.com/gpu": 1, "example.com/gpu-memory-mib": 2000}
GPU = {
    "gpuLayers": -1,
    "gpuMemory": 1500,
    "nodeSelector": {"nvidia.com/gpu.present": "true"},
    "resources": {"requests": SEAT, "limits": SEAT},
}


@dataclass(frozen=True)
class Place:
    """A Postgres Cluster of two instances, a namespace with a database in it, and a folder for files of the pages."""

    tenant: Tenant
    images: ProjectImages
    directory: Path

    @property
    def values(self) -> dict[str, str]:
        """The values of the pages' variables."""
        return {
            "VALUES": str(self.directory / "values.yaml"),
            "MANIFEST": str(self.directory / "memoryindex.yaml"),
            "RESTORED": str(self.directory / "cluster.yaml"),
            "TARGET": _moment(timedelta(hours=1)),
            "NAMESPACE": self.tenant.name,
            "NAMESPACES": self.tenant.name,
            "INDEX": INDEX,
            "SECRET": SECRET,
            "KEY": KEY,
            "URI_FILE": str(self.directory / "uri"),
            "POSTGRES_NAMESPACE": self.tenant.postgres.namespace,
            "POSTGRES": self.tenant.postgres.name,
            "DATABASE": self.tenant.database,
            "ALLOWED": self.tenant.name,
            "NEXT": MODEL,
            "EMBEDDING": json.dumps({"model": MODEL, "dimensions": DIMENSIONS}),
            "FORMER": str(self.directory / "embedding.json"),
            "BEFORE": str(self.directory / "embedder.json"),
            "CLAIM": FORMER_UID,
        }

    def first_embedding(self) -> dict[str, Any]:
        """Return spec.embedding with another name for the one model that the image holds.

        It says more than the next model may: its pooling, window and file.
        """
        file = {"path": f"/models/{MODEL}.gguf", "digest": PROFILES[MODEL].file_digest}
        source = {"image": {"reference": self.images.embedder, **file}}
        return {"model": "custom", "dimensions": DIMENSIONS, "pooling": "mean", "maxTokens": 256, "source": source}

    def write(self, name: str, *bodies: Any) -> None:
        """Write a file that a page names."""
        (self.directory / name).write_text(yaml.safe_dump_all(bodies), encoding="utf-8")


@pytest.fixture(scope="module")
def place(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A cluster without the operator, whose database holds memories; everything is removed at the end."""
    images = devcluster.load_images(cluster)
    postgres = create_postgres(cluster, namespace="runbooks-dbaas", name="pg-runbooks", instances=2, storage="1Gi")
    tenant = Tenant(postgres, "runbooks", images.operator)
    tenant.create()
    tenant.store(MEMORIES)
    cluster.apply(database_object(postgres, tenant.database))
    place = Place(tenant, images, tmp_path_factory.mktemp("runbooks"))
    place.write("memoryindex.yaml", manifest(tenant, {"embedding": place.first_embedding()}))
    values = {name: {"image": image(getattr(images, name))} for name in ("operator", "embedder")}
    place.write("values.yaml", values | {"permitted": {"imagePrefixes": [images.embedder]}})
    yield place
    for namespace in (tenant.name, postgres.namespace):
        cluster.kubectl("delete", "namespace", namespace, "--ignore-not-found", "--wait", "--timeout=300s")


def image(reference: str) -> dict[str, str]:
    repository, _, tag = reference.rpartition(":")
    return {"repository": repository, "tag": tag}


def quarantine_a_row(place: Place) -> None:
    """Record that the text of one row has failed for good, and take its vector away."""
    tenant = place.tenant
    row = MEMORIES[0].id
    tenant.sql(
        "INSERT INTO memory_embedding_failures (id, text_hash, attempts, error_class, next_attempt) "
        "SELECT id, memory_index_text_hash(content), 5, 'EmbedderRejected', 'infinity' "
        f"FROM memories WHERE id = {row};"
        f"UPDATE memories SET embedding = NULL WHERE id = {row}"
    )
    tenant.wait_condition("Backfilled", "QuarantinedRows", status="True")


def rotate_the_password(place: Place) -> None:
    """Change the role's password in the database and end its sessions, but leave the Secret as it is."""
    tenant = place.tenant
    password = secrets.token_hex(16)
    (place.directory / "uri").write_text(tenant.dsn.replace(tenant.password, password), encoding="utf-8")
    role = tenant.database
    tenant.sql(
        f"ALTER ROLE {role} PASSWORD '{password}';"
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'"
    )
    tenant.wait_condition("DatabaseReachable", "AuthenticationFailed")


def lose_the_gpu(place: Place) -> None:
    """Have the embedder demand a GPU, which no node offers.

    None comes back either, so what the page is to go back to is kept beforehand: the embedder on the CPU.
    """
    tenant = place.tenant
    (place.directory / "embedder.json").write_text(json.dumps(tenant.index()["spec"]["embedder"]), encoding="utf-8")
    tenant.kubectl("patch", "memoryindex", INDEX, "--type=merge", "--patch", json.dumps({"spec": {"embedder": GPU}}))
    tenant.wait_condition("EmbedderReady", "Unschedulable")


def kill_the_primary(place: Place) -> None:
    """Delete the pod of the primary, and wait until CloudNativePG has promoted the replica."""
    postgres = place.tenant.postgres
    former = postgres.primary()
    postgres.cluster.kubectl("-n", postgres.namespace, "delete", "pod", former, "--grace-period=0", "--force")
    eventually(postgres.primary, lambda now: now != former, what="another primary", seconds=180)


def keep_a_copy(place: Place) -> None:
    """Copy the Cluster while it runs, add a memory that the copy lacks, and write the manifest of the restored one."""
    tenant, postgres = place.tenant, place.tenant.postgres
    tenant.postgres.wait_ready()
    record_a_backup(postgres)
    live = postgres.cluster.kubectl_json("-n", postgres.namespace, "get", "cluster.postgresql.cnpg.io", postgres.name)
    kept = ("imageName", "imagePullPolicy", "resources", "storage", "postgresql")
    spec = {name: live["spec"][name] for name in kept if name in live["spec"]}
    postgres.cluster.apply(copied_cluster(postgres, COPY, spec, source=postgres.name))
    Postgres(postgres.cluster, postgres.namespace, COPY).wait_ready()
    place.write("cluster.yaml", copied_cluster(postgres, postgres.name, spec, source=COPY))
    tenant.as_owner("INSERT INTO memories (id, content) VALUES (9999, 'written after the backup')")


def record_a_backup(postgres: Postgres) -> None:
    """Make a Backup that CloudNativePG leaves alone, completed before the time that the page goes back to."""
    postgres.cluster.apply(
        {
            "apiVersion": "postgresql.cnpg.io/v1",
            "kind": "Backup",
            "metadata": {
                "name": COPY,
                "namespace": postgres.namespace,
                "annotations": {"cnpg.io/reconciliationLoop": "disabled"},
            },
            "spec": {"cluster": {"name": postgres.name}},
        }
    )
    status = json.dumps({"status": {"phase": "completed", "stoppedAt": _moment(timedelta())}})
    object_name = f"backup.postgresql.cnpg.io/{COPY}"
    patch = ("patch", object_name, "--subresource=status", "--type=merge", "--patch", status)
    postgres.cluster.kubectl("-n", postgres.namespace, *patch)


def _moment(later: timedelta) -> str:
    return f"{datetime.now(UTC) + later:%Y-%m-%dT%H:%M:%SZ}"


def copied_cluster(postgres: Postgres, name: str, spec: dict[str, Any], *, source: str) -> dict[str, Any]:
    """Return a Cluster that begins as a physical copy of another one in its namespace."""
    origin = {
        "name": source,
        "connectionParameters": {"host": f"{source}-rw", "user": "streaming_replica", "sslmode": "verify-ca"},
        "sslKey": {"name": f"{source}-replication", "key": "tls.key"},
        "sslCert": {"name": f"{source}-replication", "key": "tls.crt"},
        "sslRootCert": {"name": f"{source}-ca", "key": "ca.crt"},
    }
    return {
        "apiVersion": "postgresql.cnpg.io/v1",
        "kind": "Cluster",
        "metadata": {"name": name, "namespace": postgres.namespace},
        "spec": {
            **spec,
            "instances": 1,
            "bootstrap": {"pg_basebackup": {"source": source}},
            "externalClusters": [origin],
        },
    }


def claim_from_another_kubernetes_cluster(place: Place) -> None:
    """Have the database say what it says after a restore from another Kubernetes cluster: an object there claims it."""
    tenant = place.tenant
    claim = json.loads(tenant.sql("SELECT obj_description('memory_index_state'::regclass)"))
    text = json.dumps(claim | {"uid": FORMER_UID, "kubernetes": "7c1a50d2-0000-4000-8000-000000000001"})
    tenant.sql(f"COMMENT ON TABLE memory_index_state IS '{text}'")
    tenant.wait_condition("Ready", "TableTaken")


SITUATIONS: dict[str, Callable[[Place], None]] = {
    "quarantine": quarantine_a_row,
    "rotated-password": rotate_the_password,
    "gpu-lost": lose_the_gpu,
    "failover": kill_the_primary,
    "restore": keep_a_copy,
    "another-cluster": claim_from_another_kubernetes_cluster,
}


def assert_installed(place: Place) -> None:
    assert place.tenant.embedded() == place.tenant.counts().expected


def assert_new_password(place: Place) -> None:
    stored = place.tenant.cluster.kubectl_json("-n", place.tenant.name, "get", "secret", SECRET)
    assert base64.b64decode(stored["data"][KEY]).decode() == (place.directory / "uri").read_text()
    assert stored["metadata"]["labels"]["memory-index.dev/allow"] == "dsn"


def assert_back(place: Place) -> None:
    embedder = place.tenant.index()["spec"]["embedder"]
    assert embedder["gpuLayers"] == 0
    assert not GPU.keys() & embedder.keys() - {"gpuLayers", "resources"}
    assert_installed(place)


def assert_swapped(place: Place) -> None:
    models = place.tenant.index()["status"]["model"]
    assert (models["active"], models.get("next")) == (MODEL, None)
    assert not place.tenant.index()["spec"]["embedding"].keys() & {"source", "pooling", "maxTokens"}
    assert_installed(place)


def assert_restored(place: Place) -> None:
    assert place.tenant.sql("SELECT count(*) FROM memories WHERE id = 9999") == "0"
    assert place.tenant.counts().sensitive_embedded == 0
    assert_installed(place)


def assert_claimed(place: Place) -> None:
    """The table has the claim of the object, whose vectors are those of before."""
    claim = json.loads(place.tenant.sql("SELECT obj_description('memory_index_state'::regclass)"))
    assert claim["uid"] == place.tenant.index()["metadata"]["uid"]
    assert_installed(place)


def assert_rolled_back(place: Place) -> None:
    history = json.loads(
        place.tenant.cluster.helm("history", "memory-index", "-n", "memory-index-system", "-o", "json")
    )
    assert [entry["description"] for entry in history][-1] == "Rollback to 1"


def assert_uninstalled(place: Place) -> None:
    """The vectors stay, and the definition where somebody else has an object."""
    assert_installed(place)
    kubectl = place.tenant.cluster.kubectl
    if kubectl("get", "crd", "memoryindexes.memory-index.dev", "--ignore-not-found"):
        assert kubectl("get", "memoryindexes", "--all-namespaces", "-o", "name")


CHECKS: dict[str, Callable[[Place], None]] = {
    "rotated-password": assert_new_password,
    "gpu-lost": assert_back,
    "swap": assert_swapped,
    "restore": assert_restored,
    "another-cluster": assert_claimed,
    "upgrade": assert_rolled_back,
    "uninstall": assert_uninstalled,
}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ORDER)
def test_the_commands_of_a_runbook_do_what_it_says(name: str, place: Place, figures: dict[str, Any]) -> None:
    """In the situation that a page is for, each of its commands succeeds, and what it promises holds afterwards."""
    page: Page = PAGES[name]
    SITUATIONS.get(name, lambda _: None)(place)
    run_page(page, place.tenant.cluster, {key: value for key, value in place.values.items() if key in page.variables})
    CHECKS.get(name, assert_installed)(place)
    figures["runbooks_executed"] = figures.get("runbooks_executed", 0) + 1
