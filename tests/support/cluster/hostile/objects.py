"""Twelve hostile MemoryIndex objects, which the operator must refuse.

None may change anything outside its namespace, learn a key, or hold up the operator. Each public function that takes a
scene and an author creates one hostile object and checks how it is refused. An unexpected refusal raises
AssertionError, and a change of somebody else's property raises TakenOverError.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from devcluster.postgres import Postgres, create_database, create_postgres
from memory_operator.resources.common import fingerprint
from tests.support.cluster.hostile.author import (
    BOMB,
    ENDLESS,
    RECORDING,
    Author,
    operator_starts,
    serve_others,
    snapshot,
    versions,
)
from tests.support.cluster.memories import rows
from tests.support.cluster.platform import Platform
from tests.support.cluster.tenants import DATABASES, INDEX, Tenant
from tests.support.waiting import eventually

OWN_NAMESPACE = "hostile-servers"
PAYROLL, INTRUDER = "payroll", "intruder"


class TakenOverError(AssertionError):
    """A hostile object has changed something that belongs to somebody else; the message says what."""


@dataclass(frozen=True)
class Scene:
    """A victim whose MemoryIndex is Ready, and a Postgres server of the hostile author.

    The author's server has a database with the same name as the victim's database; `own_dsn` is its connection string.
    `payroll_dsn` names a database on the victim's server that neither the victim nor the author owns.
    """

    platform: Platform
    victim: Tenant
    own_server: Postgres
    own_dsn: str
    payroll_dsn: str


@contextmanager
def opened_scene(platform: Platform) -> Iterator[Scene]:
    """Create the victim and the author's Postgres server for the block, and delete both afterwards."""
    victim = Tenant(platform.postgres, "victim", platform.image)
    victim.create()
    victim.store(rows(12))
    victim.apply_index()
    victim.wait_ready()
    own = create_postgres(platform.cluster, namespace=OWN_NAMESPACE, name="pg-own", storage="1Gi", cpu="100m")
    try:
        own_dsn = create_database(platform.cluster, own, victim.database)
        create_database(platform.cluster, platform.postgres, PAYROLL)
        dsn = create_database(platform.cluster, platform.postgres, INTRUDER)
        yield Scene(platform, victim, own, own_dsn, dsn.removesuffix(INTRUDER) + PAYROLL)
    finally:
        for database in (PAYROLL, INTRUDER):
            platform.postgres.psql(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")
        platform.cluster.kubectl("delete", "namespace", OWN_NAMESPACE, "--wait=false")
        victim.remove()


def foreign_cluster(scene: Scene, author: Author) -> None:
    """Create a MemoryIndex for a Cluster of another namespace that has not consented to this use."""
    author.write_dsn(scene.own_dsn)
    author.apply_index()
    message = author.wait_refused("ConsentMissing")
    _require(f"memory-index.dev/allowed-namespaces=PRESENT_NAMES,{author.namespace}" in message, message)
    _require(author.kubectl("get", "deployments,jobs", "-o", "name") == "", "something was started")


def foreign_server(scene: Scene, author: Author) -> None:
    """Create a MemoryIndex for the victim's Cluster with the connection string of another server, and delete it.

    Its deletion policy asks to undo the migrations, which must not happen on the other server either.
    """
    scene.victim.postgres.allow(author.namespace)
    author.write_dsn(scene.own_dsn)
    # Verified by the Cluster's authority, the other server would be refused before it says who it is.
    author.apply_index(deletionPolicy="Delete", database__tls={"mode": "Require"})
    author.wait_refused("DatabaseIdentityMismatch")
    author.kubectl("delete", "memoryindex", INDEX, "--wait=false")
    eventually(
        lambda: author.wait_refused("DatabaseIdentityMismatch"),
        lambda message: "Cannot undo the migrations" in message,
        what="the deletion waits",
    )
    _require(author.kubectl("get", "jobs", "-o", "name") == "", "a Job was started")
    tables = "SELECT count(*) FROM pg_class WHERE relname LIKE 'memor%'"
    _require(scene.own_server.psql(tables, scene.victim.database) == "0", "the other server was written to")


def foreign_owner(scene: Scene, author: Author) -> None:
    """Create a MemoryIndex for a database that somebody else owns and that has no Database object."""
    scene.victim.postgres.allow(author.namespace)
    author.write_dsn(scene.payroll_dsn)
    author.apply_index(database__name=PAYROLL)
    message = author.wait_refused("DatabaseObjectMissing", kind="ExtensionReady")
    _require('"owner": "OWNER"' in message, message)


def taken_table(scene: Scene, author: Author) -> None:
    """Create a MemoryIndex for the table that the victim's MemoryIndex has claimed."""
    scene.victim.postgres.allow(author.namespace)
    author.write_dsn(scene.victim.dsn)
    author.apply_index(deletionPolicy="Delete")
    message = author.wait_refused("TableTaken")
    _require(f"{scene.victim.name}/{INDEX}" in message, message)
    author.kubectl("delete", "memoryindex", INDEX, "--wait", "--timeout=240s")


def second_object(scene: Scene, author: Author) -> None:
    """Create a second MemoryIndex for the victim's table, in the victim's namespace."""
    beside = replace(author, namespace=scene.victim.name)
    beside.apply_index("second", deletionPolicy="Delete")
    message = beside.wait_refused("TableTaken", name="second")
    _require(f"{scene.victim.name}/{INDEX}" in message, message)
    scene.victim.kubectl("delete", "memoryindex", "second", "--wait", "--timeout=240s")


_SELECTOR = {"app": "somebody-elses"}
_CONTAINER = {"name": "app", "image": "localhost/app:1"}
_POD = {"metadata": {"labels": _SELECTOR}, "spec": {"containers": [_CONTAINER]}}
_TAKEN: dict[str, dict[str, Any]] = {
    "Service": {"apiVersion": "v1", "spec": {"selector": _SELECTOR, "ports": [{"port": 80}]}},
    "Deployment": {
        "apiVersion": "apps/v1",
        "spec": {"replicas": 0, "selector": {"matchLabels": _SELECTOR}, "template": _POD},
    },
}


def taken_service(scene: Scene, author: Author) -> None:
    """Create a MemoryIndex whose embedder needs the name of a Service that somebody else has created."""
    _taken_name(scene, author, "Service")


def taken_deployment(scene: Scene, author: Author) -> None:
    """Create a MemoryIndex whose embedder needs the name of a Deployment that somebody else has created."""
    _taken_name(scene, author, "Deployment")


def _taken_name(scene: Scene, author: Author, kind: str) -> None:
    tenant = Tenant(scene.platform.postgres, f"{author.namespace}-own", scene.platform.image)
    tenant.create()
    tenant.store(rows(12))
    tenant.cluster.apply(
        {"kind": kind, "metadata": {"name": f"{INDEX}-embedder", "namespace": tenant.name}, **_TAKEN[kind]}
    )
    name = f"{kind}/{INDEX}-embedder"
    before = versions(tenant.cluster, tenant.name, kind)[name]
    tenant.apply_index()
    message = tenant.wait_condition("Ready", "NameTaken").message
    _require(f"{kind} {tenant.name}/{INDEX}-embedder" in message, message)
    _unchanged(before, versions(tenant.cluster, tenant.name, kind)[name])
    tenant.kubectl("delete", "memoryindex", INDEX, "--wait", "--timeout=240s")
    _unchanged(before, versions(tenant.cluster, tenant.name, kind)[name])
    tenant.remove()


def taken_database_object(scene: Scene, author: Author) -> None:
    """Create a MemoryIndex that needs the name of a Database object that somebody else has created.

    That Database object is for another database.
    """
    own = scene.own_server
    name = f"{author.namespace}-{INDEX}-{fingerprint([author.namespace, INDEX])[:8]}"
    spec = {"cluster": {"name": own.name}, "name": "theirs", "owner": "app", "databaseReclaimPolicy": "retain"}
    author.cluster.apply(
        {
            "apiVersion": "postgresql.cnpg.io/v1",
            "kind": "Database",
            "metadata": {"name": name, "namespace": own.namespace},
            "spec": spec,
        }
    )
    before = versions(author.cluster, own.namespace, DATABASES)
    own.allow(author.namespace)
    author.write_dsn(own.application_dsn())
    cluster = {"name": own.name, "namespace": own.namespace}
    author.apply_index(database__cluster=cluster, database__name="app")
    message = author.wait_refused("NameTaken")
    _require(f"Database {own.namespace}/{name}" in message, message)
    _unchanged(before, versions(author.cluster, own.namespace, DATABASES))


def foreign_key(scene: Scene, author: Author) -> None:
    """Create a MemoryIndex whose bearer key is in a Secret without the label that permits this use."""
    _serve(scene, author)
    author.kubectl("create", "secret", "generic", "private", "--from-literal=apiKey=canary")
    author.apply_index(**_external(author, RECORDING, apiKey={"secretName": "private"}))
    message = author.wait_refused("ConsentMissing")
    _require("label secret private memory-index.dev/allow=api-key" in message, message)
    _require(author.requests() == [], "the server was asked")


def packed_answer(scene: Scene, author: Author) -> None:
    """Create MemoryIndex objects with an embedder whose short answer unpacks to 300 MB."""
    _answers_without_measure(scene, author, BOMB, "no list of models")


def endless_answer(scene: Scene, author: Author) -> None:
    """Create MemoryIndex objects with an embedder whose answer never ends."""
    _answers_without_measure(scene, author, ENDLESS, "longer than 1024 KiB")


def _answers_without_measure(scene: Scene, author: Author, path: str, said: str) -> None:
    _serve(scene, author)
    restarts = operator_starts(author.cluster)
    author.apply_index("first", **_external(author, path))
    for number in range(4):
        author.apply_index(f"more-{number}", **_external(author, path))
    message = author.wait_refused("ExternalEmbedderUnreachable", kind="EmbedderReady", name="first")
    _require(said in message, message)
    serve_others(scene.victim)
    _require(operator_starts(author.cluster) == restarts, "the operator was started again")


def link_local_url(scene: Scene, author: Author) -> None:
    """Create a MemoryIndex with an embedder at a link-local address, which belongs to the node's own network."""
    scene.victim.postgres.allow(author.namespace)
    author.write_dsn(scene.victim.dsn)
    author.apply_index(embedder={"external": {"url": "http://169.254.169.254/latest"}})
    message = author.wait_refused("NotPermitted")
    _require("permitted.externalHosts" in message, message)


HOSTILE: Mapping[str, Callable[[Scene, Author], None]] = {
    "foreign-cluster": foreign_cluster,
    "foreign-server": foreign_server,
    "foreign-owner": foreign_owner,
    "taken-table": taken_table,
    "second-object": second_object,
    "taken-service": taken_service,
    "taken-deployment": taken_deployment,
    "taken-database-object": taken_database_object,
    "foreign-key": foreign_key,
    "packed-answer": packed_answer,
    "endless-answer": endless_answer,
    "link-local-url": link_local_url,
}


def refuse(scene: Scene, name: str) -> None:
    """Create one hostile object, check that it is refused and changes nothing of the victim, and remove it.

    Raises:
        TakenOverError: something that belongs to somebody else has changed.
        AssertionError: the hostile object was not refused in the expected way.
    """
    author = Author(scene.victim, f"hostile-{name}")
    author.create()
    try:
        before = snapshot(scene.victim, PAYROLL, INTRUDER)
        HOSTILE[name](scene, author)
        _unchanged(before, snapshot(scene.victim, PAYROLL, INTRUDER))
    finally:
        author.remove()


def _serve(scene: Scene, author: Author) -> None:
    """Start the author's server that answers badly, and give the author access to the victim's database."""
    scene.victim.postgres.allow(author.namespace)
    author.write_dsn(scene.victim.dsn)
    author.start_server(scene.platform.image)


def _external(author: Author, path: str, **more: Any) -> dict[str, Any]:
    return {"embedder": {"external": {"url": author.server_url(path), **more}}}


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)


def _unchanged(before: Any, after: Any) -> None:
    if before != after:
        raise TakenOverError(f"before: {before}\nafter: {after}")
