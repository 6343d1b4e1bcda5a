"""A role that logs in by a certificate: which pair is used, under whose consent, and what is said where it fails."""

import base64
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from devcluster.node.pki import Authority, Pair
from memory_operator.api.reasons import Reason
from memory_operator.clients.certificates import role_certificate
from memory_operator.reconcile.authorization.client_certificate import explained
from memory_operator.reconcile.facts import Credentials, Problem, RoleCertificate
from memory_operator.resources import workers
from memory_operator.resources.worker_pods import mounted_secrets
from memory_recall.postgres.client_certificate import ClientCertificate
from memory_recall.status import RowCounts
from tests.unit.memory_operator.conftest import CERTIFICATES, FULL, START, World
from tests.unit.memory_operator.test_operator_controller import DSN, Bench

CLIENTS = Authority(START)
PAIR, RENEWED = CLIENTS.client("owner", ""), CLIENTS.client("owner", "")
ROLE: dict[str, Any] = {"credentials": {"clientCertificate": {"secretName": "app-certificate"}}}
WITHOUT_PASSWORD = "postgresql://owner@pg-rw.dbaas.svc:5432/app"
NAMED = "team/app-certificate"
SHOWN = RoleCertificate(NAMED, "owner", START - timedelta(days=1), START + timedelta(days=1))
LOGIN = Credentials("app", role="owner", certificate=SHOWN)
REFUSED = Problem(Reason.AUTHENTICATION_FAILED, "Refused.", "Check it.")


def secret(pair: Pair = PAIR, changes: dict[str, bytes | None] | None = None) -> dict[str, Any]:
    """A Secret as `kubectl cnpg certificate` writes it."""
    content = {"tls.crt": pair.certificate, "tls.key": pair.key, **(changes or {})}
    data = {key: base64.b64encode(value).decode() for key, value in content.items() if value is not None}
    return {"type": "kubernetes.io/tls", "data": data}


def put(bench: Bench, stored: dict[str, Any], label: str | None = "client-certificate") -> None:
    labels = {"memory-index.dev/allow": label} if label else {}
    bench.put("Secret", "team", "app-certificate", {**stored, "metadata": {"labels": labels}})


@pytest.fixture
def bench(world: World) -> Bench:
    found = Bench(world)
    found.put_dsn(WITHOUT_PASSWORD)
    found.api.index["spec"]["database"]["credentials"] |= ROLE["credentials"]
    return found


async def test_the_operator_shows_the_certificate_and_verifies_the_server(bench: Bench) -> None:
    put(bench, secret())
    await bench.reconcile()
    (source,) = bench.sources
    assert source.dsn == WITHOUT_PASSWORD
    assert source.tls.client == ClientCertificate(PAIR.certificate.decode().strip(), PAIR.key.decode().strip())
    assert source.tls.ca == CERTIFICATES


async def test_a_renewed_certificate_is_shown_at_the_next_observation(bench: Bench) -> None:
    put(bench, secret())
    await bench.reconcile()
    put(bench, secret(RENEWED))
    await bench.reconcile()
    renewed = bench.sources[-1].tls.client
    assert renewed is not None
    assert renewed.certificate == RENEWED.certificate.decode().strip()


async def test_an_object_without_a_certificate_shows_none(bench: Bench) -> None:
    put(bench, secret())
    del bench.api.index["spec"]["database"]["credentials"]["clientCertificate"]
    await bench.reconcile()
    assert bench.sources[-1].tls.client is None


@pytest.mark.promise("secret-by-label")
@pytest.mark.promise("secret-for-one-use")
@pytest.mark.parametrize("label", [None, "dsn", "api-key"])
async def test_a_secret_without_its_label_is_never_shown_as_a_certificate(bench: Bench, label: str | None) -> None:
    put(bench, secret(), label)
    await bench.reconcile(2)
    assert bench.sources == []
    assert set(bench.api.writes) == {"status"}
    ready = bench.api.condition("Ready")
    assert ready["reason"] == "ConsentMissing"
    assert "kubectl -n team label secret app-certificate " in ready["message"]
    assert "memory-index.dev/allow=client-certificate`" in ready["message"]


async def test_a_secret_that_is_allowed_as_connection_uri_may_hold_the_certificate_too(bench: Bench) -> None:
    stored = secret(PAIR, {"uri": WITHOUT_PASSWORD.encode()})
    bench.put("Secret", "team", "dsn", {**stored, "metadata": {"labels": {"memory-index.dev/allow": "dsn"}}})
    bench.api.index["spec"]["database"]["credentials"]["clientCertificate"] = {"secretName": "dsn"}
    await bench.reconcile()
    assert bench.sources[-1].tls.client is not None


async def test_a_withdrawn_consent_stops_the_workers_that_mount_the_certificate(bench: Bench) -> None:
    put(bench, secret())
    bench.database = replace(FULL, rows=RowCounts(total=100, embedded=90, sensitive=10))
    await bench.reconcile(2)
    sync = ("Deployment", "team", "mem-sync")
    assert mounted_secrets(bench.api.objects[sync]["spec"]["template"]) == {"dsn", "app-certificate"}
    assert bench.api.objects[sync]["spec"]["replicas"] == 1
    put(bench, secret(), None)
    await bench.reconcile(2)
    assert bench.api.objects[sync]["spec"]["replicas"] == 0
    put(bench, secret())
    await bench.reconcile(2)
    assert bench.api.objects[sync]["spec"]["replicas"] == 1


@pytest.mark.promise("no-text-or-secret-in-outputs")
@pytest.mark.parametrize(
    ("stored", "reason", "said"),
    [
        (None, "SecretMissing", "does not exist"),
        (secret(PAIR, {"tls.key": None}), "SecretKeyMissing", "no key tls.key"),
        (secret(PAIR, {"tls.crt": None}), "SecretKeyMissing", "no key tls.crt"),
        (
            secret(PAIR, {"tls.key": CLIENTS.client("owner", "").key}),
            "CertificateInvalid",
            "does not belong to its key",
        ),
        (secret(PAIR, {"tls.crt": b"none"}), "CertificateInvalid", "no PEM text"),
        (secret(PAIR, {"tls.key": b"none"}), "CertificateInvalid", "no PEM text"),
    ],
)
async def test_a_pair_that_cannot_be_used_is_named_and_nothing_is_connected_to(
    bench: Bench, stored: dict[str, Any] | None, reason: str, said: str
) -> None:
    if stored:
        put(bench, stored)
    await bench.reconcile()
    condition = bench.api.condition("DatabaseReachable")
    assert (condition["status"], condition["reason"]) == ("False", reason)
    assert NAMED in condition["message"]
    assert said in condition["message"]
    assert "spec.database.credentials.clientCertificate" in condition["message"]
    assert bench.sources == []
    for line in PAIR.key.decode().splitlines()[1:-1]:
        assert line not in str(bench.api.index)


async def test_what_is_wrong_with_the_certificate_explains_a_refused_connection(bench: Bench) -> None:
    put(bench, secret(CLIENTS.client("another", "")))
    bench.database = REFUSED
    await bench.reconcile()
    condition = bench.api.condition("DatabaseReachable")
    assert condition["reason"] == "AuthenticationFailed"
    assert f"The certificate of Secret {NAMED} is of user another, which is not the role" in condition["message"]


def test_the_facts_of_a_certificate_are_its_user_and_its_times() -> None:
    found = role_certificate(secret(), NAMED)
    assert not isinstance(found, Problem)
    assert (found[0].location, found[0].user) == (NAMED, "owner")
    assert found[0].not_before < found[0].not_after


@pytest.mark.parametrize(
    ("problem", "certificate", "reason", "said", "remedy"),
    [
        (REFUSED, replace(SHOWN, not_after=START), Reason.CERTIFICATE_INVALID, "expired on 2026-01", "Issue it anew"),
        (
            Problem(Reason.DATABASE_UNREACHABLE, "No answer."), replace(SHOWN, not_after=START),
            Reason.CERTIFICATE_INVALID, "expired on 2026-01", "Issue it anew",
        ),
        (
            REFUSED, replace(SHOWN, not_before=START + timedelta(hours=1)),
            Reason.CERTIFICATE_INVALID, "valid only from 2026-01", "Issue it anew",
        ),
        (REFUSED, replace(SHOWN, user="bob"), Reason.AUTHENTICATION_FAILED, "is of user bob, which", "common name"),
        (REFUSED, replace(SHOWN, user="a b\n"), Reason.AUTHENTICATION_FAILED, "is of another user", "common name"),
        (REFUSED, SHOWN, Reason.AUTHENTICATION_FAILED, f"Secret {NAMED} was shown.", "Check it."),
    ],
)  # fmt: skip
def test_a_failed_login_is_explained_by_the_certificate_that_was_shown(
    problem: Problem, certificate: RoleCertificate, reason: Reason, said: str, remedy: str
) -> None:
    found = explained(problem, replace(LOGIN, certificate=certificate), START)
    assert found.reason is reason
    assert said in found.message
    assert remedy in found.remedy


@pytest.mark.parametrize(
    ("problem", "credentials"),
    [
        (REFUSED, Credentials("app", role="owner")),
        (Problem(Reason.DATABASE_UNREACHABLE, "No answer."), LOGIN),
        (Problem(Reason.SERVER_NOT_VERIFIED, "It."), replace(LOGIN, certificate=replace(SHOWN, not_after=START))),
    ],
)
def test_any_other_failure_is_left_as_it_is(problem: Problem, credentials: Credentials) -> None:
    assert explained(problem, credentials, START) is problem


def test_workers_get_certificate_and_key_as_files_and_neither_in_their_environment(world: World) -> None:
    index = world.index(database=ROLE)
    for job in (workers.migrate_job(index, world.images, 0), workers.backfill_job(index, world.images, 0)):
        pod = job["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        env = {item["name"]: item["value"] for item in container["env"]}
        (mount,) = [one for one in container["volumeMounts"] if one["name"] == "client"]
        (source,) = [one["secret"] for one in pod["volumes"] if one["name"] == "client"]
        assert env["MEMORY_DATABASE_CERTIFICATE_FOLDER"] == mount["mountPath"]
        assert [item["path"] for item in source["items"]] == ["tls.crt", "tls.key"], "as the settings name them"
        assert "subPath" not in mount, "a subPath mount would not see a renewal"
        assert (source["secretName"], source["defaultMode"]) == ("app-certificate", 0o440)


def test_another_certificate_makes_another_job_and_none_keeps_the_former_name(world: World) -> None:
    names = [
        workers.migrate_job(world.index(database=database), world.images, 0)["metadata"]["name"]
        for database in ({}, ROLE, {"credentials": {"clientCertificate": {"secretName": "other"}}})
    ]
    assert len(set(names)) == 3
    assert DSN not in str(names)
