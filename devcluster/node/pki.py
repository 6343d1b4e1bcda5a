"""Issues the certificates of one cluster: an authority that lives as long as the cluster, and a key pair per client.

Clients are identified by certificate (common name = user, organization = group), as in an ordinary installation, so
that the Node authorizer and RBAC see real identities. The keys are of P-256, because making such a key takes a
millisecond.
"""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from devcluster.node.layout import API_SERVICE_ADDRESS, FRONT_PROXY, NODE_ADDRESS, NODE_NAME

LIFETIME = datetime.timedelta(days=365)
_CLOCK_SKEW = datetime.timedelta(minutes=10)

_AUTHORITY_USAGE = x509.KeyUsage(
    key_cert_sign=True,
    crl_sign=True,
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)
_SERVER_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)
_SERVER_ADDRESSES = ("127.0.0.1", NODE_ADDRESS, API_SERVICE_ADDRESS)

CLIENTS = {
    "admin": ("admin", "system:masters"),
    "kubelet-client": ("kube-apiserver-kubelet-client", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "proxy": ("system:kube-proxy", ""),
    "coredns": ("coredns", ""),
    "kubelet": (f"system:node:{NODE_NAME}", "system:nodes"),
}


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key, in PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """A self-signed certificate authority, which issues the certificates of one cluster."""

    def __init__(self, now: datetime.datetime | None = None, name: str = "devcluster-ca") -> None:
        self._now = now or datetime.datetime.now(datetime.UTC)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = _name(name, "")
        builder = self._builder(self._subject, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        # Without these three, OpenSSL refuses a certificate where a client is strict, as Python is from 3.13 on.
        builder = builder.add_extension(_AUTHORITY_USAGE, critical=True)
        self._identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        builder = builder.add_extension(self._identifier, critical=False)
        self._certificate = builder.sign(self._key, hashes.SHA256())

    @property
    def certificate(self) -> bytes:
        """Certificate of the authority itself, in PEM."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def client(self, user: str, group: str) -> Pair:
        """Issue a client certificate for a user in a group; the group may be empty."""
        return self._issue(_name(user, group), ExtendedKeyUsageOID.CLIENT_AUTH, ())

    def server(self, name: str) -> Pair:
        """Issue a serving certificate for `name`, valid for all names and addresses of the node and the API server."""
        names: list[x509.GeneralName] = [x509.DNSName(entry) for entry in (name, NODE_NAME, *_SERVER_NAMES)]
        names += [x509.IPAddress(ipaddress.ip_address(entry)) for entry in _SERVER_ADDRESSES]
        return self._issue(_name(name, ""), ExtendedKeyUsageOID.SERVER_AUTH, names)

    def _builder(self, subject: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - _CLOCK_SKEW)
            .not_valid_after(self._now + LIFETIME)
        )

    def _issue(
        self, subject: x509.Name, usage: x509.ObjectIdentifier, names: "list[x509.GeneralName] | tuple[()]"
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(subject, key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._identifier)
        builder = builder.add_extension(issuer, critical=False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        signed = builder.sign(self._key, hashes.SHA256())
        return Pair(signed.public_bytes(serialization.Encoding.PEM), private_pem(key))


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key as unencrypted PEM.

    The key needs no encryption, because only its owner can read the directory in which it is kept.
    """
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def write(directory: Path) -> dict[str, Pair]:
    """Issue all keys and certificates, and return the certificates of the clients by name.

    The files that the node's components read are written to `directory`.
    """
    directory.mkdir(parents=True, mode=0o700)
    authority = Authority()
    clients = {who: authority.client(user, group) for who, (user, group) in CLIENTS.items()}
    front = Authority(name="devcluster-front-proxy-ca")
    pairs = {
        "api": authority.server("kube-apiserver"),
        "kubelet-server": authority.server(NODE_NAME),
        "kubelet-client": clients["kubelet-client"],
        "front-proxy": front.client(FRONT_PROXY, ""),
    }
    for who, pair in pairs.items():
        (directory / f"{who}.crt").write_bytes(pair.certificate)
        (directory / f"{who}.key").write_bytes(pair.key)
    (directory / "ca.crt").write_bytes(authority.certificate)
    (directory / "front-proxy-ca.crt").write_bytes(front.certificate)
    signing = ec.generate_private_key(ec.SECP256R1())
    (directory / "sa.key").write_bytes(private_pem(signing))
    (directory / "sa.pub").write_bytes(
        signing.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return clients


def _name(user: str, group: str) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
    if group:
        attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
    return x509.Name(attributes)
