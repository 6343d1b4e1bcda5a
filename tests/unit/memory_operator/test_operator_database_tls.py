"""How the database server is verified: by which certificates, which copies of them there are, and what is said."""

import base64
from time import monotonic
from typing import Any

import pytest

from devcluster.node.pki import Authority
from memory_operator.api.reasons import Reason
from memory_operator.clients import object_facts
from memory_operator.clients.authorities import CACHED_SECONDS
from memory_operator.clients.kube import KubeError
from memory_operator.reconcile.authorization.database_tls import ca_secret, database_tls
from memory_operator.reconcile.facts import Problem
from memory_operator.reconcile.plan import Apply, Delete, Plan
from memory_operator.resources import workers
from memory_operator.resources.database_ca import CA_FILE, ca_config_map
from memory_recall.postgres.tls import TlsMode
from tests.unit.memory_operator.conftest import CERTIFICATES, CLUSTER, PASSWORD, World
from tests.unit.memory_operator.test_operator_controller import Bench

NAMED = {"name": "our-ca", "key": "bundle.pem"}


def without_cluster(tls: dict[str, Any]) -> dict[str, Any]:
    return {"cluster": None, "extension": {"management": "Observe"}, "tls": tls}


@pytest.fixture
def bench(world: World) -> Bench:
    return Bench(world)


def some_seconds_later(bench: Bench) -> None:
    bench.observer.authorities.clock = lambda: monotonic() + CACHED_SECONDS


@pytest.mark.finding("operator F4")
@pytest.mark.parametrize(
    ("database", "mode", "secret"),
    [
        ({}, TlsMode.VERIFY_FULL, ("dbaas", "pg-ca", "ca.crt")),
        ({"tls": {"mode": "VerifyCA"}}, TlsMode.VERIFY_CA, ("dbaas", "pg-ca", "ca.crt")),
        ({"tls": {"mode": "Require"}}, TlsMode.REQUIRE, None),
        ({"tls": {"caSecret": NAMED}}, TlsMode.VERIFY_FULL, ("team", "our-ca", "bundle.pem")),
        (without_cluster({}), None, None),
        (without_cluster({"mode": "VerifyFull"}), TlsMode.VERIFY_FULL, None),
        (without_cluster({"caSecret": {"name": "our-ca"}}), TlsMode.VERIFY_FULL, ("team", "our-ca", "ca.crt")),
    ],
)
def test_the_least_tls_and_its_authority_follow_from_the_specification(
    world: World, database: dict[str, Any], mode: TlsMode | None, secret: tuple[str, str, str] | None
) -> None:
    index = world.index(database=database)
    assert database_tls(index, "").mode is mode
    assert ca_secret(index, CLUSTER if index.cluster else None) == secret


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "pg-ca"),
        ({"spec": {"certificates": {"serverCASecret": "given"}}}, "given"),
        ({"status": {"certificates": {"serverCASecret": "used"}}}, "used"),
    ],
)
def test_the_cluster_says_which_secret_holds_its_authority(fields: dict[str, Any], name: str) -> None:
    found = object_facts.cluster_facts({"metadata": {"namespace": "dbaas", "name": "pg"}, **fields})
    assert found.ca_secret == name


@pytest.mark.promise("database-server-verified")
@pytest.mark.finding("operator F4")
async def test_workers_get_the_certificates_alone_and_verify_by_them(bench: Bench) -> None:
    await bench.reconcile()
    config_map = bench.api.objects["ConfigMap", "team", "mem-database-ca"]
    assert config_map["data"] == {"ca.crt": CERTIFICATES}
    assert PASSWORD not in str(config_map), "it stands for the authority's key"
    (source,) = bench.sources
    assert (source.tls.mode, source.tls.ca) == (TlsMode.VERIFY_FULL, CERTIFICATES)


@pytest.mark.finding("operator F4")
async def test_a_rotated_authority_is_copied_anew_and_nothing_is_written_before(bench: Bench) -> None:
    await bench.reconcile(2)
    bench.api.writes.clear()
    await bench.reconcile()
    assert "ConfigMap" not in bench.api.writes
    both = Authority().certificate.decode() + CERTIFICATES
    bench.put("Secret", "dbaas", "pg-ca", {"data": {"ca.crt": base64.b64encode(both.encode()).decode()}})
    some_seconds_later(bench)
    await bench.reconcile()
    assert bench.api.objects["ConfigMap", "team", "mem-database-ca"]["data"] == {"ca.crt": both}
    assert bench.sources[-1].tls.ca == both


@pytest.mark.finding("operator F4")
async def test_a_rotated_authority_is_read_at_once_where_the_former_one_no_longer_verifies_the_server(
    bench: Bench,
) -> None:
    await bench.reconcile()
    bench.database = Problem(Reason.SERVER_NOT_VERIFIED, "It is not verified.")
    await bench.reconcile()
    new = Authority().certificate.decode()
    bench.put("Secret", "dbaas", "pg-ca", {"data": {"ca.crt": base64.b64encode(new.encode()).decode()}})
    await bench.reconcile()
    assert bench.sources[-1].tls.ca == new


async def test_the_authority_of_a_cluster_is_read_every_ten_seconds_however_many_objects_need_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """500 objects would otherwise read one Secret a thousand times a minute."""
    get, read = bench.api.get, []

    async def counting(kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        read.append(name)
        return await get(kind, namespace, name)

    monkeypatch.setattr(bench.api, "get", counting)
    await bench.reconcile(3)
    assert read.count("pg-ca") == 1
    some_seconds_later(bench)
    await bench.reconcile()
    assert read.count("pg-ca") == 2


@pytest.mark.finding("operator F4")
@pytest.mark.parametrize(
    ("secret", "reason"),
    [
        (None, Reason.SECRET_MISSING),
        ({"data": {"other": "eA=="}}, Reason.SECRET_KEY_MISSING),
        ({"data": {"ca.crt": base64.b64encode(b"nonsense").decode()}}, Reason.SECRET_INVALID),
    ],
)
async def test_an_authority_that_cannot_be_had_is_named_and_nothing_is_connected_to(
    bench: Bench, secret: dict[str, Any] | None, reason: Reason
) -> None:
    del bench.api.objects["Secret", "dbaas", "pg-ca"]
    if secret:
        bench.put("Secret", "dbaas", "pg-ca", secret)
    await bench.reconcile()
    condition = bench.api.condition("DatabaseReachable")
    assert (condition["status"], condition["reason"]) == ("False", reason.code)
    assert "dbaas/pg-ca" in condition["message"]
    assert "spec.database.tls.caSecret" in condition["message"]
    assert bench.sources == []


async def test_an_authority_that_the_operator_may_not_read_is_named_with_the_value_that_grants_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    get = bench.api.get

    async def refusing(kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        if (kind, name) == ("Secret", "pg-ca"):
            raise KubeError("reading", 403, "forbidden", refused=True)
        return await get(kind, namespace, name)

    monkeypatch.setattr(bench.api, "get", refusing)
    await bench.reconcile()
    condition = bench.api.condition("DatabaseReachable")
    assert condition["reason"] == "NotPermitted"
    assert "cnpg.authoritySecrets" in condition["message"]


async def test_without_the_clusters_consent_its_authority_is_not_read(bench: Bench) -> None:
    cluster = bench.api.objects["Cluster", "dbaas", "pg"]
    bench.put("Cluster", "dbaas", "pg", {**cluster, "metadata": {**cluster["metadata"], "annotations": {}}})
    await bench.reconcile()
    assert ("ConfigMap", "team", "mem-database-ca") not in bench.api.objects
    assert bench.api.condition("Ready")["reason"] == "ConsentMissing"


def settings_of(manifest: dict[str, Any]) -> dict[str, str]:
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    return {item["name"]: item["value"] for item in container["env"]}


def test_workers_without_an_authority_of_their_own_mount_none(world: World) -> None:
    index = world.index(database=without_cluster({"mode": "VerifyFull"}))
    job = workers.migrate_job(index, world.images, 0)
    assert settings_of(job)["MEMORY_DATABASE_TLS_MODE"] == "verify-full"
    assert "MEMORY_DATABASE_CA_FILE" not in settings_of(job)
    assert [volume["name"] for volume in job["spec"]["template"]["spec"]["volumes"]] == ["dsn", "tmp"]
    assert settings_of(workers.migrate_job(world.index(), world.images, 0))["MEMORY_DATABASE_CA_FILE"] == CA_FILE


def test_another_mode_makes_another_job(world: World) -> None:
    names = {
        workers.index_job(world.index(database={"tls": tls}), world.images, 0)["metadata"]["name"]
        for tls in ({}, {"mode": "VerifyCA"}, {"mode": "Require"})
    }
    assert len(names) == 3


def of_config_maps(plan: Plan) -> list[Any]:
    return [
        action
        for action in plan.actions
        if (action.manifest if isinstance(action, Apply) else {"kind": action.kind})["kind"] == "ConfigMap"
    ]


def test_a_copy_that_is_no_longer_needed_is_deleted(world: World) -> None:
    live = ca_config_map(world.index(), CERTIFICATES)
    live = {**live, "metadata": {**live["metadata"], "uid": "u-ca"}}
    children = {("ConfigMap", "mem-database-ca"): live}
    assert of_config_maps(world.decide(children=children)) == []
    plan = world.decide(world.index(database={"tls": {"mode": "Require"}}), children=children)
    assert of_config_maps(plan) == [Delete("ConfigMap", "team", "mem-database-ca", "u-ca")]


def test_a_copy_that_somebody_changed_is_put_right(world: World) -> None:
    live = {**ca_config_map(world.index(), CERTIFICATES), "data": {"ca.crt": Authority().certificate.decode()}}
    (action,) = of_config_maps(world.decide(children={("ConfigMap", "mem-database-ca"): live}))
    assert action.manifest["data"] == {"ca.crt": CERTIFICATES}
