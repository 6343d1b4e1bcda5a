"""Indexes physical copies of a Postgres server beside their original, and points objects at the wrong one of the two.

The copy is made by `pg_basebackup`, so it has the original's system identifier, databases, roles and passwords. One
copy is a Cluster beside the original, another has the original's name in another namespace. Each situation says what
the object must report, and the other server must be as it was.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from devcluster.cluster import Cluster
from devcluster.demo import follow, objects
from devcluster.errors import DevclusterError
from devcluster.postgres import Postgres, create_postgres
from tests.support.cluster.hostile.author import Author
from tests.support.cluster.memories import rows
from tests.support.cluster.platform import Platform
from tests.support.cluster.tenants import INDEX, KEY, SECRET, Tenant
from tests.support.waiting import eventually

ORIGINAL, STAGING = "pg-original", "copies-staging"
INDEXED, UNTOUCHED = "copied", "untouched"  # databases: one with an index and a claim, one without
ROWS = 12
COLUMNS = "SELECT count(*) FROM pg_attribute WHERE attrelid = 'memories'::regclass AND attnum > 0 AND NOT attisdropped"
STATE = "SELECT count(*) || ' ' || count(embedding) FROM memories"
CLAIM = "SELECT obj_description('memory_index_state'::regclass, 'pg_class')"


@dataclass(frozen=True)
class Scene:
    """The original server with one indexed database and one without an index, and two physical copies of it."""

    platform: Platform
    original: Postgres
    indexed: Tenant
    untouched: Tenant
    clone: Postgres
    staging: Postgres
    authors: list[Author] = field(default_factory=list)

    def author(self, name: str, database: Tenant) -> Author:
        """Create a namespace for an object that names this database."""
        author = Author(database, f"copies-{name}")
        author.create()
        self.authors.append(author)
        return author

    def object_of(self, name: str, server: Postgres, reached: Postgres, database: Tenant, **changes: Any) -> Author:
        """Create a MemoryIndex that names the Cluster `server`, and whose Secret leads to the server `reached`.

        Certificates are not verified, since a wrong server would be refused by its certificate alone.
        """
        author = self.author(name, database)
        server.allow(author.namespace)
        author.write_dsn(database.dsn.replace(self.original.host, reached.host))
        cluster = {"name": server.name, "namespace": server.namespace}
        author.apply_index(database__cluster=cluster, database__tls={"mode": "Require"}, **changes)
        return author

    def seen(self, server: Postgres) -> dict[str, str]:
        """Return what a mistake would change on a server."""
        return {
            "rows": server.psql(STATE, self.indexed.database),
            "claim": server.psql(CLAIM, self.indexed.database),
            "columns": server.psql(COLUMNS, self.untouched.database),
        }


@contextmanager
def opened_scene(platform: Platform) -> Iterator[Scene]:
    """Create the original, index one of its databases, and copy it twice; delete everything after the block."""
    cluster, space = platform.cluster, platform.postgres.namespace
    original = create_postgres(cluster, namespace=space, name=ORIGINAL, storage="1Gi", cpu="100m")
    indexed, untouched = (Tenant(original, name, platform.image) for name in (INDEXED, UNTOUCHED))
    try:
        for tenant in (indexed, untouched):
            tenant.create()
            tenant.store(rows(ROWS))
        indexed.apply_index()
        indexed.wait_ready()
        clone, staging = copy_of(original, space, "pg-clone"), copy_of(original, STAGING, ORIGINAL)
        scene = Scene(platform, original, indexed, untouched, clone, staging)
        try:
            yield scene
        finally:
            for author in scene.authors:
                author.remove()
    finally:
        indexed.remove()
        untouched.remove()
        cluster.kubectl(
            "-n", space, "delete", "clusters.postgresql.cnpg.io", ORIGINAL, "pg-clone", "--ignore-not-found"
        )
        cluster.kubectl("delete", "namespace", STAGING, "--ignore-not-found", "--wait=false")


def copy_of(original: Postgres, namespace: str, name: str) -> Postgres:
    """Create a Cluster that is a physical copy of the original, and wait until it is ready."""
    cluster, host = original.cluster, original.host
    cluster.apply(objects.namespace(namespace))
    if namespace != original.namespace:
        for secret in (f"{original.name}-replication", f"{original.name}-ca"):
            _copy_secret(cluster, original.namespace, namespace, secret)
    spec = cluster.kubectl_json("-n", original.namespace, "get", "clusters.postgresql.cnpg.io", original.name)["spec"]
    kept = {key: spec[key] for key in ("instances", "imageName", "imagePullPolicy", "resources", "storage")}
    replication, authority = f"copied-{original.name}-replication", f"copied-{original.name}-ca"
    if namespace == original.namespace:
        replication, authority = f"{original.name}-replication", f"{original.name}-ca"
    source = {
        "name": "origin",
        "connectionParameters": {"host": host, "user": "streaming_replica", "sslmode": "verify-ca"},
        "sslKey": {"name": replication, "key": "tls.key"},
        "sslCert": {"name": replication, "key": "tls.crt"},
        "sslRootCert": {"name": authority, "key": "ca.crt"},
    }
    copied = {"bootstrap": {"pg_basebackup": {"source": "origin"}}, "externalClusters": [source]}
    cluster.apply(
        {
            "apiVersion": "postgresql.cnpg.io/v1",
            "kind": "Cluster",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {**kept, **copied},
        }
    )
    postgres = Postgres(cluster, namespace, name)
    eventually(lambda: _is_copied(original, postgres), bool, what=f"{name} is copied", seconds=300, poll=5)
    postgres.wait_ready()
    return postgres


def _is_copied(original: Postgres, copied: Postgres) -> bool:
    """Return whether the copy is ready; ask the original for the checkpoint that pg_basebackup waits for."""
    original.psql("CHECKPOINT")
    return copied.is_ready()


def _copy_secret(cluster: Cluster, namespace: str, target: str, name: str) -> None:
    """Copy a Secret under another name, since CloudNativePG makes Secrets of the same names for the copy."""
    found = cluster.kubectl_json("-n", namespace, "get", "secret", name)
    meta = {"name": f"copied-{name}", "namespace": target}
    cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": found["data"]})


def productions_uri_in_an_object_of_the_clone(scene: Scene) -> None:
    """The Secret leads to the original's database that has no index: nothing is done there, nor by the deletion."""
    author = scene.object_of("mistaken", scene.clone, scene.original, scene.untouched, deletionPolicy="Delete")
    message = author.wait_refused("DatabaseIdentityMismatch")
    _require(ORIGINAL in message and "pg-clone" in message, message)
    author.kubectl("delete", "memoryindex", INDEX, "--wait=false")
    eventually(
        lambda: author.wait_refused("DatabaseIdentityMismatch"),
        lambda found: "Cannot undo the migrations" in found,
        what="the deletion waits",
        seconds=60,
    )
    _require(not author.kubectl("get", "jobs", "-o", "name"), "a Job was started")
    author.kubectl("patch", "memoryindex", INDEX, "--type=merge", "-p", '{"spec":{"deletionPolicy":"Retain"}}')


def clone_beside_its_original(scene: Scene) -> None:
    """The clone's own URI: its object is Ready beside the original's, and keeps the vectors that were copied."""
    _takes_over(scene, scene.object_of("clone", scene.clone, scene.clone, scene.indexed), scene.clone)


def copy_under_the_same_name(scene: Scene) -> None:
    """A copy in another namespace has the original's name: its address tells it apart."""
    _takes_over(scene, scene.object_of("staging", scene.staging, scene.staging, scene.indexed), scene.staging)


def productions_uri_in_an_object_of_the_same_name(scene: Scene) -> None:
    """The copy's namesake reaches the original: the server is none of the copy's instances."""
    author = scene.object_of("namesake", scene.staging, scene.original, scene.untouched)
    message = author.wait_refused("DatabaseIdentityMismatch")
    _require("none of the instances" in message, message)
    _require(not author.kubectl("get", "jobs", "-o", "name"), "a Job was started")


def plain_postgres(scene: Scene) -> None:
    """Without a Cluster the first server counts: when the URI then leads to the clone, nothing is done there."""
    scene.clone.psql("CREATE EXTENSION IF NOT EXISTS vector", scene.untouched.database)
    author = scene.author("plain", scene.untouched)
    author.write_dsn(scene.untouched.dsn.replace(scene.original.host, scene.clone.host))
    credentials = {"secretName": SECRET, "key": KEY}
    plain = {"name": scene.untouched.database, "credentials": credentials, "extension": {"management": "Observe"}}
    author.apply_index(database=plain)
    eventually(
        lambda: author.index().get("status", {}).get("database", {}).get("clusterName"),
        lambda found: found == "pg-clone",
        what="the clone is remembered",
        seconds=90,
    )
    author.write_dsn(scene.untouched.dsn)
    author.wait_refused("DatabaseIdentityMismatch")


SITUATIONS: dict[str, Callable[[Scene], None]] = {
    one.__name__.replace("_", "-"): one
    for one in (
        productions_uri_in_an_object_of_the_clone,
        productions_uri_in_an_object_of_the_same_name,
        clone_beside_its_original,
        copy_under_the_same_name,
        plain_postgres,
    )
}


def try_out(scene: Scene, name: str) -> bool:
    """Try one situation; return whether the original is as it was.

    Raises:
        AssertionError: the object reports something else than it must.
    """
    before = scene.seen(scene.original)
    SITUATIONS[name](scene)
    scene.indexed.wait_condition("Ready", "Ready", status="True", seconds=60)
    return scene.seen(scene.original) == before


def run_copies(platform: Platform, say: Callable[[str], None]) -> dict[str, Any]:
    """Try all situations; return what went wrong by name, and in how many the wrong database was touched."""
    failed: dict[str, str] = {}
    touched = 0
    say("making two copies of a server")
    with opened_scene(platform) as scene:
        for name in SITUATIONS:
            say(name)
            try:
                touched += not try_out(scene, name)
            except (AssertionError, DevclusterError) as error:
                failed[name] = str(error)
    return {"failed": failed, "touched": touched}


def _takes_over(scene: Scene, author: Author, server: Postgres) -> None:
    vectors = server.psql(STATE, scene.indexed.database)
    eventually(
        lambda: follow.view(author.index()), lambda seen: seen.ready, what=f"{author.namespace} Ready", seconds=240
    )
    _require(server.psql(STATE, scene.indexed.database) == vectors, "the copied vectors did not stay")
    _require(server.name in server.psql(CLAIM, scene.indexed.database), "the copy's claim names another server")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)
