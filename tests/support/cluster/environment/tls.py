"""Verify the database server by its Cluster's authority, by a wrong one, and while authority and certificate rotate.

The Postgres cluster is one of its own, since its authority is exchanged. CloudNativePG makes a new authority, and with
it a new certificate of the server, when the Secrets of both are deleted; Postgres keeps its connections meanwhile.
"""

import base64
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devcluster.demo import objects
from devcluster.errors import DevclusterError
from devcluster.node.pki import Authority
from devcluster.postgres import Postgres, create_postgres
from tests.support.cluster.memories import rows
from tests.support.cluster.platform import Platform
from tests.support.cluster.tenants import INDEX, KEY, SECRET, Tenant
from tests.support.waiting import eventually

_SCRIPT = Path(__file__).with_name("tls_script.py")
_CLUSTER, _TENANT, _WRONG = "pg-tls", "tls", "wrong-authority"
_CA_MOUNT = "/var/run/database-ca"
_END_SECONDS = 240.0  # in which the script has followed the new authority
_LOAD_SECONDS = 20.0  # of recalls before and after the rotation
_ENCRYPTED = """
SELECT bool_and(s.ssl) AND count(*) > 0 FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid)
WHERE a.datname = current_database() AND a.application_name LIKE 'memory-%'
"""


@dataclass(frozen=True)
class TlsOutcome:
    """What was seen of verified TLS; `recall_errors` counts the recalls that failed while the authority rotated."""

    verified: bool
    wrong_ca_refused: bool
    rotations_under_load: int
    recall_errors: int
    recalls: int


def measure_tls(platform: Platform, say: Callable[[str], None]) -> TlsOutcome:
    """Run the situations one after the other."""
    cluster = platform.cluster
    say("creating a Postgres cluster")
    postgres = create_postgres(cluster, namespace=platform.postgres.namespace, name=_CLUSTER, cpu="100m")
    tenant = Tenant(postgres, _TENANT, platform.image)
    try:
        tenant.create()
        tenant.store(rows(40))
        tenant.apply_index()
        say("verifying by the Cluster's own authority")
        tenant.wait_ready()
        verified = tenant.sql(_ENCRYPTED) == "t" and _demanded(tenant) == "verify-full"
        say("rotating the authority under load")
        with _recalling(tenant) as end:
            time.sleep(_LOAD_SECONDS)
            _rotate(tenant)
            time.sleep(_LOAD_SECONDS)
            seen = end()
        say("naming a wrong authority")
        return TlsOutcome(
            verified=verified and bool(seen["verified_anew"]),
            wrong_ca_refused=_wrong_refused(tenant),
            rotations_under_load=int(seen.get("recalls", 0) > 0),
            recall_errors=seen.get("errors", 0),
            recalls=seen.get("recalls", 0),
        )
    finally:
        _remove(tenant)


def _demanded(tenant: Tenant) -> str:
    """Return the least TLS that the sync worker is given."""
    found = tenant.cluster.kubectl_json("-n", tenant.name, "get", "deployment", f"{INDEX}-sync")
    (container,) = found["spec"]["template"]["spec"]["containers"]
    return str({one["name"]: one.get("value") for one in container["env"]}["MEMORY_DATABASE_TLS_MODE"])


def _wrong_refused(tenant: Tenant) -> bool:
    """Name another authority; return whether the server is refused, and used again with its own authority."""
    other = objects.dsn_secret(tenant.name, _WRONG, "ca.crt", Authority().certificate.decode())
    tenant.cluster.apply(other)
    tenant.apply_index(database__tls={"caSecret": {"name": _WRONG}})
    tenant.wait_condition("DatabaseReachable", "ServerNotVerified")
    tenant.apply_index()
    return tenant.wait_ready().ready


def _authority(postgres: Postgres) -> str:
    """Return the authority's certificate as CloudNativePG keeps it; empty while there is none."""
    where = ("-n", postgres.namespace, "get", "secret", f"{postgres.name}-ca")
    with suppress(DevclusterError):
        return base64.b64decode(postgres.cluster.kubectl_json(*where)["data"]["ca.crt"]).decode()
    return ""


def _rotate(tenant: Tenant) -> None:
    """Have authority and certificate made anew, and wait until the workers' copy is the new authority."""
    postgres = tenant.postgres
    before = _authority(postgres)
    names = (f"{postgres.name}-ca", f"{postgres.name}-server")
    postgres.cluster.kubectl("-n", postgres.namespace, "delete", "secret", *names)
    eventually(lambda: _authority(postgres), lambda found: found not in {"", before}, what="a new authority")
    copy = ("-n", tenant.name, "get", "configmap", f"{INDEX}-database-ca")
    eventually(
        lambda: str(tenant.cluster.kubectl_json(*copy)["data"]["ca.crt"]),
        lambda text: text.split() == _authority(postgres).split(),
        what="the workers' copy of the new authority",
    )
    tenant.wait_ready()


@contextmanager
def _recalling(tenant: Tenant) -> Iterator[Callable[[], dict[str, Any]]]:
    """Recall in a pod that mounts the connection string and the authority, until the yielded function is called.

    That function ends the recalls and returns what the script has counted.
    """
    url = f"http://{INDEX}-embedder:8080"
    pod = objects.toolbox(tenant.name, image=tenant.image, secret=SECRET, key=KEY, embedder_url=url)
    (container,) = pod["spec"]["containers"]
    container["env"].append({"name": "MEMORY_DATABASE_CA_FILE", "value": f"{_CA_MOUNT}/ca.crt"})
    container["volumeMounts"].append({"name": "authority", "mountPath": _CA_MOUNT, "readOnly": True})
    pod["spec"]["volumes"].append({"name": "authority", "configMap": {"name": f"{INDEX}-database-ca"}})
    tenant.cluster.apply(pod)
    tenant.kubectl("wait", "--for=condition=Ready", f"pod/{objects.TOOLBOX}", "--timeout=240s")
    command = ("exec", "-i", objects.TOOLBOX, "--", "python", "-c", _SCRIPT.read_text(encoding="utf-8"))
    process = subprocess.Popen(
        tenant.cluster.kubectl_command("-n", tenant.name, *command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def end() -> dict[str, Any]:
        said, _ = process.communicate(timeout=_END_SECONDS)
        return dict(json.loads(said))

    try:
        yield end
    finally:
        process.kill()


def _remove(tenant: Tenant) -> None:
    tenant.kubectl("delete", "memoryindex", "--all", "--wait", "--timeout=240s")
    tenant.cluster.kubectl("delete", "namespace", tenant.name, "--wait=false")
    where = ("-n", tenant.postgres.namespace, "delete", "clusters.postgresql.cnpg.io", tenant.postgres.name)
    tenant.cluster.kubectl(*where, "--wait=false")
