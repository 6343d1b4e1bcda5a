"""A role of a CloudNativePG Cluster that logs in by a certificate alone, as `kubectl cnpg certificate` issues it."""

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from devcluster.node.pki import Pair, private_pem
from tests.e2e.conftest import open_tenant
from tests.support.cluster.memories import rows
from tests.support.cluster.platform import Platform
from tests.support.cluster.tenants import INDEX, KEY, SECRET, Tenant
from tests.support.waiting import eventually

pytestmark = pytest.mark.cluster
MEMORIES = rows(12)
CERTIFICATE = "role-certificate"
CLUSTERS = "clusters.postgresql.cnpg.io"
LOGIN = {"secretName": SECRET, "key": KEY, "clientCertificate": {"secretName": CERTIFICATE}}
NEW_SESSION_SECONDS = 300.0  # in which the kubelet has brought a changed Secret
SHOWN = """
SELECT pg_terminate_backend(pid) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
WHERE datname = current_database() AND application_name = 'memory-sync' AND client_serial <> {serial};
SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
WHERE datname = current_database() AND application_name = 'memory-sync' AND client_serial = {serial};
"""


def issued(tenant: Tenant, role: str) -> Pair:
    """Issue a certificate of a role by the authority of the Cluster's clients."""
    stored = tenant.cluster.kubectl_json("-n", tenant.postgres.namespace, "get", "secret", f"{tenant.postgres.name}-ca")
    certificate, signer = (base64.b64decode(stored["data"][name]) for name in ("ca.crt", "ca.key"))
    authority = x509.load_pem_x509_certificate(certificate)
    signing = serialization.load_pem_private_key(signer, None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, role)]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=10))
        .not_valid_after(now + timedelta(days=90))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(signing, hashes.SHA256())
    )
    return Pair(made.public_bytes(serialization.Encoding.PEM), private_pem(key))


def sessions_by(tenant: Tenant, pair: Pair) -> int:
    """Count the sessions of the sync worker that have shown this certificate, and end those with another one."""
    serial = x509.load_pem_x509_certificate(pair.certificate).serial_number
    return int(tenant.sql(SHOWN.format(serial=serial)).splitlines()[-1])


def store(tenant: Tenant, pair: Pair) -> None:
    """Write a Secret as the plugin writes it, with the label that its owner adds."""
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": CERTIFICATE, "labels": {"memory-index.dev/allow": "client-certificate"}},
        "stringData": {"tls.crt": pair.certificate.decode(), "tls.key": pair.key.decode()},
    }
    tenant.kubectl("apply", "-f", "-", input=json.dumps(secret))


def set_rules(tenant: Tenant, *rules: str) -> None:
    """Set the lines of pg_hba that come before CloudNativePG's own."""
    patch = json.dumps({"spec": {"postgresql": {"pg_hba": list(rules)}}})
    where = ("-n", tenant.postgres.namespace, "patch", CLUSTERS, tenant.postgres.name)
    tenant.cluster.kubectl(*where, "--type=merge", "-p", patch)


@pytest.fixture(scope="module")
def certified(platform: Platform, request: pytest.FixtureRequest) -> Iterator[Tenant]:
    """A tenant whose role has no password, and whose database lets it in by a certificate alone."""
    for tenant in open_tenant(platform, request, "certificate"):
        tenant.store(MEMORIES)
        set_rules(tenant, f"hostssl {tenant.database} {tenant.database} all cert")
        tenant.sql(f'ALTER ROLE "{tenant.database}" PASSWORD NULL')
        tenant.write_secret(tenant.dsn.replace(f":{tenant.password}@", "@"))
        yield tenant
        set_rules(tenant)


def test_an_index_becomes_ready_by_a_certificate_and_follows_a_renewed_one(certified: Tenant) -> None:
    """The sync worker's pod stays the same."""
    first, renewed = issued(certified, certified.database), issued(certified, certified.database)
    store(certified, first)
    certified.apply_index(database__credentials=LOGIN)
    certified.wait_ready()
    assert certified.embedded() == sum(not one.is_sensitive for one in MEMORIES)
    pods = ("get", "pods", "-l", "app.kubernetes.io/component=sync", "-o", "jsonpath={.items[*].metadata.uid}")
    before = certified.kubectl(*pods)
    for pair in (first, renewed):
        store(certified, pair)
        eventually(
            partial(sessions_by, certified, pair),
            lambda sessions: sessions > 0,
            what="a session of the sync worker by this certificate",
            seconds=NEW_SESSION_SECONDS,
            poll=5.0,
        )
    assert certified.kubectl(*pods) == before
    certified.wait_ready()


def test_a_certificate_of_another_user_is_named_and_a_right_one_is_taken_up(certified: Tenant) -> None:
    store(certified, issued(certified, "somebody"))
    certified.apply_index(database__credentials=LOGIN)
    said = certified.wait_condition("DatabaseReachable", "AuthenticationFailed").message
    assert f"Secret {certified.name}/{CERTIFICATE} is of user somebody, which is not the role" in said
    store(certified, issued(certified, certified.database))
    assert certified.wait_ready().ready
    logged = certified.kubectl("logs", f"deployment/{INDEX}-sync")
    assert "PRIVATE KEY" not in logged + json.dumps(certified.index())
