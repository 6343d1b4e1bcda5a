"""A server with TLS in front of the tests' Postgres, which is built without it.

It speaks Postgres's own negotiation and passes everything on, so the drivers and the database are the real ones. Its
certificate can be exchanged while connections are open, as Postgres exchanges its own at a reload.
"""

import asyncio
import datetime
import ipaddress
import ssl
import tempfile
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from devcluster.node.pki import Pair
from tests.support.loopback_server import LoopbackServer

_REQUEST_BYTES = 8
_PLAIN = b"N"
_TLS = b"S"


class Authority:
    """A certificate authority as CloudNativePG makes it: a new one has the same name, and its keys are identified."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _common_name("authority of pg")
        self._identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        own = self._builder(self._name, self._key).add_extension(self._identifier, critical=False)
        own = own.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.certificate = _pem(own.sign(self._key, hashes.SHA256()))

    def server(self, name: str) -> Pair:
        """Issue a certificate for this name and 127.0.0.1."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        issuer = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._identifier)
        made = self._builder(_common_name(name), key).add_extension(issuer, critical=False)
        made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
        plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        return Pair(_pem(made.sign(self._key, hashes.SHA256())).encode(), key.private_bytes(*plain))

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=10))
            .not_valid_after(now + datetime.timedelta(days=1))
        )


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def server_context(pair: Pair) -> ssl.SSLContext:
    """The context of a server with this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(pair.key + pair.certificate)
        context.load_cert_chain(file.name)
    return context


class TlsFront(LoopbackServer):
    """Listens on a free port of `host`. Without a `pair` it says that it has no TLS, as Postgres does then."""

    def __init__(self, postgres_port: int, pair: Pair | None, host: str = "127.0.0.1") -> None:
        super().__init__()
        self._postgres_port = postgres_port
        self._context = server_context(pair) if pair else None
        self.host = host
        self.encrypted = 0
        self.plain = 0

    def exchange(self, pair: Pair) -> None:
        """Use another certificate for the connections that come from now on."""
        self._context = server_context(pair)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Negotiate TLS, and pass on what both sides send."""
        first = await reader.readexactly(_REQUEST_BYTES)
        if first[4:] == b"\x04\xd2\x16\x2f":  # SSLRequest
            writer.write(_TLS if self._context else _PLAIN)
            await writer.drain()
            if self._context:
                await writer.start_tls(self._context)
                self.encrypted += 1
            first = b""
        self.plain += self._context is None or bool(first)
        from_postgres, upstream = await asyncio.open_connection("127.0.0.1", self._postgres_port)
        try:
            upstream.write(first)
            await asyncio.gather(_pass_on(reader, upstream), _pass_on(from_postgres, writer))
        finally:
            upstream.transport.abort()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    raise ConnectionError
