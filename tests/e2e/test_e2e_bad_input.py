"""A user's mistake is reported in a condition with the object and the remedy; its correction needs no restart."""

import pytest

from tests.support.cluster.memories import rows
from tests.support.cluster.tenants import INDEX, SECRET, Tenant
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster
FEW = rows(12)


def test_a_missing_secret_is_reported_and_its_creation_suffices(tenant: Tenant) -> None:
    tenant.store(FEW)
    tenant.kubectl("delete", "secret", SECRET)
    tenant.apply_index()
    condition = tenant.wait_condition("DatabaseReachable", "SecretMissing")
    assert f"{tenant.name}/{SECRET}" in condition.message
    assert "Create the Secret" in condition.message
    assert tenant.view().stalled is None, "External Secrets may be about to write it"
    tenant.write_secret(tenant.dsn)
    tenant.wait_ready()


def test_a_wrong_password_has_its_own_reason_and_is_not_quoted(tenant: Tenant) -> None:
    tenant.write_secret(tenant.dsn.replace(tenant.password, "not-the-password"))
    tenant.apply_index()
    condition = tenant.wait_condition("DatabaseReachable", "AuthenticationFailed")
    assert f"{tenant.name}/{SECRET}" in condition.message
    assert "credentials" in condition.message
    assert "not-the-password" not in str(tenant.index())
    tenant.write_secret(tenant.dsn.replace(".dbaas.svc", ".nowhere.svc"))
    tenant.wait_condition("DatabaseReachable", "DatabaseUnreachable")
    assert "not-the-password" not in str(tenant.index())
    assert tenant.password not in str(tenant.index())


def test_a_secret_that_is_no_connection_string_is_named(tenant: Tenant) -> None:
    tenant.write_secret("the password is hunter2")
    tenant.apply_index()
    condition = tenant.wait_condition("DatabaseReachable", "SecretInvalid")
    assert "postgresql://" in condition.message
    assert "hunter2" not in str(tenant.index())


def test_a_missing_cluster_is_named(tenant: Tenant) -> None:
    tenant.apply_index(database__cluster={"name": "pg-nowhere", "namespace": "dbaas"})
    condition = tenant.wait_condition("DatabaseReachable", "ClusterMissing")
    assert "dbaas/pg-nowhere" in condition.message
    assert "Create the CloudNativePG Cluster" in condition.message


def test_a_column_of_other_dimensions_is_refused_and_left_as_it_is(tenant: Tenant) -> None:
    tenant.store(FEW)
    tenant.sql("CREATE EXTENSION vector")
    tenant.as_owner("ALTER TABLE memories ADD COLUMN embedding halfvec(512)")
    tenant.apply_index()
    condition = tenant.wait_condition("Ready", "DimensionMismatch")
    assert "512" in condition.message
    assert "384" in condition.message
    assert tenant.view().stalled is not None
    column = "attrelid = 'memories'::regclass AND attname = 'embedding'"
    assert tenant.sql(f"SELECT atttypmod FROM pg_attribute WHERE {column}") == "512"


def test_an_external_embedder_that_is_away_is_named_and_ours_has_gone_for_it(tenant: Tenant) -> None:
    tenant.store(FEW)
    tenant.apply_index()
    eventually(lambda: ours(tenant), lambda found: len(found) == 3, what="an embedder of our own")
    tenant.apply_index(embedder={"external": {"url": f"http://nobody.{tenant.name}.svc:8080"}})
    message = tenant.wait_condition("EmbedderReady", "ExternalEmbedderUnreachable").message
    assert f"There is no Service {tenant.name}/nobody" in message
    eventually(lambda: ours(tenant), lambda found: found == [], what="our embedder gone")


def ours(tenant: Tenant) -> list[str]:
    """The objects of the embedder that the operator runs."""
    names = tenant.kubectl("get", "deployments,services,networkpolicies", "-o", "name").split()
    return [name for name in names if name.endswith(f"/{INDEX}-embedder")]
