"""Twelve hostile objects: none changes anything outside its namespace, learns a key, or holds up the operator."""

from collections.abc import Iterator
from typing import Any

import pytest

from devcluster.postgres import Postgres, create_database, create_postgres
from memory_bench.operator.hostile import (
    BOMB,
    ENDLESS,
    RECORDING,
    Author,
    operator_restarts,
    serve_others,
    snapshot,
    versions,
)
from memory_bench.operator.platform import Platform
from memory_bench.operator.tenants import DATABASES, INDEX, Tenant
from memory_bench.operator.texts import rows
from memory_bench.operator.waiting import eventually
from memory_operator.resources.common import fingerprint
from tests.e2e.conftest import open_tenant, slug

pytestmark = pytest.mark.cluster
OWN_NAMESPACE = "hostile-servers"


@pytest.fixture(scope="module")
def victim(platform: Platform, request: pytest.FixtureRequest) -> Iterator[Tenant]:
    """A team whose index is ready, in a database of the shared Postgres cluster."""
    for tenant in open_tenant(platform, request, "victim"):
        tenant.store(rows(12))
        tenant.apply_index()
        tenant.wait_ready()
        yield tenant


@pytest.fixture
def author(victim: Tenant, request: pytest.FixtureRequest) -> Iterator[Author]:
    """A namespace that the Postgres cluster does not allow."""
    made = Author(victim, slug(request.node.name))
    made.create()
    yield made
    made.remove()


@pytest.fixture(scope="module")
def own_server(platform: Platform) -> Iterator[Postgres]:
    """A Postgres server of the author's own."""
    cluster = platform.postgres.cluster
    yield create_postgres(cluster, namespace=OWN_NAMESPACE, name="pg-own", storage="1Gi")
    cluster.kubectl("delete", "namespace", OWN_NAMESPACE, "--wait=false")


@pytest.fixture(scope="module")
def own_dsn(own_server: Postgres, victim: Tenant) -> str:
    """A connection string to a database of the victim's name, on the author's own server."""
    return create_database(own_server.cluster, own_server, victim.database)


@pytest.fixture
def serving(author: Author, victim: Tenant, platform: Platform) -> Author:
    """The author with a server that answers badly."""
    victim.postgres.allow(author.namespace)
    author.write_dsn(victim.dsn)
    author.start_server(platform.image)
    return author


def external(author: Author, path: str, **more: Any) -> dict[str, Any]:
    return {"embedder": {"external": {"url": author.server_url(path), **more}}}


def test_a_cluster_of_another_namespace_that_does_not_consent(author: Author, victim: Tenant, own_dsn: str) -> None:
    before = snapshot(victim)
    author.write_dsn(own_dsn)
    author.apply_index()
    message = author.wait_refused("ConsentMissing")
    assert f"memory-index.dev/allowed-namespaces=PRESENT_NAMES,{author.namespace}" in message
    assert author.kubectl("get", "deployments,jobs", "-o", "name") == ""
    assert snapshot(victim) == before


def test_a_connection_string_to_another_server(
    author: Author, victim: Tenant, own_dsn: str, own_server: Postgres
) -> None:
    before = snapshot(victim)
    victim.postgres.allow(author.namespace)
    author.write_dsn(own_dsn)
    author.apply_index(deletionPolicy="Delete")
    author.wait_refused("DatabaseIdentityMismatch")
    author.kubectl("delete", "memoryindex", INDEX, "--wait=false")
    eventually(
        lambda: author.wait_refused("DatabaseIdentityMismatch"),
        lambda message: "Cannot undo the migrations" in message,
        what="the deletion waits",
        seconds=60,
    )
    assert author.kubectl("get", "jobs", "-o", "name") == ""
    assert own_server.psql("SELECT count(*) FROM pg_class WHERE relname LIKE 'memor%'", victim.database) == "0"
    assert snapshot(victim) == before


def test_the_owner_of_a_database(author: Author, victim: Tenant) -> None:
    """The author may connect to a database that somebody else owns, and no object names its owner yet."""
    postgres, database = victim.postgres, "payroll"
    create_database(author.cluster, postgres, database)
    dsn = create_database(author.cluster, postgres, "intruder")
    before = snapshot(victim)
    postgres.allow(author.namespace)
    author.write_dsn(dsn.removesuffix("intruder") + database)
    author.apply_index(database__name=database)
    message = author.wait_refused("DatabaseObjectMissing", kind="ExtensionReady")
    assert '"owner": "OWNER"' in message
    assert snapshot(victim) == before


def test_the_table_of_another_object(author: Author, victim: Tenant) -> None:
    before = snapshot(victim)
    victim.postgres.allow(author.namespace)
    author.write_dsn(victim.dsn)
    author.apply_index(deletionPolicy="Delete")
    assert f"{victim.name}/{INDEX}" in author.wait_refused("TableTaken")
    author.kubectl("delete", "memoryindex", INDEX, "--wait", "--timeout=60s")
    assert snapshot(victim) == before


def test_a_second_object_beside_the_first(victim: Tenant) -> None:
    before, beside = snapshot(victim), Author(victim, victim.name)
    beside.apply_index("second", deletionPolicy="Delete")
    assert f"{victim.name}/{INDEX}" in beside.wait_refused("TableTaken", name="second")
    victim.kubectl("delete", "memoryindex", "second", "--wait", "--timeout=60s")
    assert snapshot(victim) == before


SELECTOR = {"app": "somebody-elses"}
TAKEN: dict[str, dict[str, Any]] = {
    "Service": {"apiVersion": "v1", "spec": {"selector": SELECTOR, "ports": [{"port": 80}]}},
    "Deployment": {
        "apiVersion": "apps/v1",
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": SELECTOR},
            "template": {
                "metadata": {"labels": SELECTOR},
                "spec": {"containers": [{"name": "app", "image": "localhost/app:1"}]},
            },
        },
    },
}


@pytest.mark.parametrize("kind", TAKEN)
def test_a_name_that_somebody_elses_object_has(tenant: Tenant, kind: str) -> None:
    tenant.store(rows(12))
    meta = {"name": f"{INDEX}-embedder", "namespace": tenant.name}
    tenant.cluster.apply({"kind": kind, "metadata": meta, **TAKEN[kind]})
    before = versions(tenant.cluster, tenant.name, kind)
    tenant.apply_index()
    condition = tenant.wait_condition("Ready", "NameTaken")
    assert f"{kind} {tenant.name}/{INDEX}-embedder" in condition.message
    assert versions(tenant.cluster, tenant.name, kind)[f"{kind}/{INDEX}-embedder"] == before[f"{kind}/{INDEX}-embedder"]
    tenant.kubectl("delete", "memoryindex", INDEX, "--wait", "--timeout=60s")
    assert versions(tenant.cluster, tenant.name, kind)[f"{kind}/{INDEX}-embedder"] == before[f"{kind}/{INDEX}-embedder"]


def test_the_name_of_somebody_elses_database_object(author: Author, own_server: Postgres) -> None:
    """It has the very name that ours would have, and brings another database."""
    name = f"{author.namespace}-{INDEX}-{fingerprint([author.namespace, INDEX])[:8]}"
    spec = {"cluster": {"name": own_server.name}, "name": "theirs", "owner": "app", "databaseReclaimPolicy": "retain"}
    author.cluster.apply(
        {
            "apiVersion": "postgresql.cnpg.io/v1",
            "kind": "Database",
            "metadata": {"name": name, "namespace": own_server.namespace},
            "spec": spec,
        }
    )
    before = versions(author.cluster, own_server.namespace, DATABASES)
    own_server.allow(author.namespace)
    author.write_dsn(own_server.application_dsn())
    cluster = {"name": own_server.name, "namespace": own_server.namespace}
    author.apply_index(database__cluster=cluster, database__name="app")
    assert f"Database {own_server.namespace}/{name}" in author.wait_refused("NameTaken")
    assert versions(author.cluster, own_server.namespace, DATABASES) == before


def test_a_secret_that_nobody_allowed_as_a_key(serving: Author, victim: Tenant) -> None:
    before = snapshot(victim)
    serving.kubectl("create", "secret", "generic", "private", "--from-literal=apiKey=canary")
    serving.apply_index(**external(serving, RECORDING, apiKey={"secretName": "private"}))
    message = serving.wait_refused("ConsentMissing")
    assert "label secret private memory-index.dev/allow=api-key" in message
    assert serving.requests() == []
    assert snapshot(victim) == before


@pytest.mark.parametrize(
    ("path", "said"), [(BOMB, "no list of models"), (ENDLESS, "longer than 1024 KiB")], ids=[BOMB, ENDLESS]
)
def test_an_answer_without_measure(serving: Author, victim: Tenant, path: str, said: str) -> None:
    before, restarts = snapshot(victim), operator_restarts(serving.cluster)
    serving.apply_index("first", **external(serving, path))
    for number in range(4):
        serving.apply_index(f"more-{number}", **external(serving, path))
    assert said in serving.wait_refused("ExternalEmbedderUnreachable", kind="EmbedderReady", name="first")
    serve_others(victim)
    assert operator_restarts(serving.cluster) == restarts
    assert snapshot(victim) == before


def test_a_url_of_the_nodes_own_network(author: Author, victim: Tenant) -> None:
    before = snapshot(victim)
    victim.postgres.allow(author.namespace)
    author.write_dsn(victim.dsn)
    author.apply_index(embedder={"external": {"url": "http://169.254.169.254/latest"}})
    message = author.wait_refused("NotPermitted")
    assert "permitted.externalHosts" in message
    assert snapshot(victim) == before
