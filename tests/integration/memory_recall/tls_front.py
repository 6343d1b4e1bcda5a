"""A server with TLS in front of the tests' Postgres, which is built without it.

It speaks Postgres's own negotiation and passes everything on, so the drivers and the database are the real ones. Its
certificate, and the authorities of clients that it trusts, can be exchanged while connections are open, as Postgres
exchanges them at a reload. Of `cert` in pg_hba it says what Postgres says; that Postgres itself does is tried on a
cluster.
"""

import asyncio
import datetime
import ipaddress
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from devcluster.node.pki import Pair
from tests.support.loopback_server import LoopbackServer

_Result = TypeVar("_Result")
_REQUEST_BYTES = 8
_PLAIN = b"N"
_TLS = b"S"
_NONE_SHOWN = "connection requires a valid client certificate"
_OF_ANOTHER = "certificate authentication failed"


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


def server_context(pair: Pair, clients: str = "", latest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    """The context of a server with this certificate, which verifies those of clients if their authorities are given."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = latest
    if clients:
        context.verify_mode = ssl.CERT_OPTIONAL  # as Postgres, which says by itself that a role needs one
        context.load_verify_locations(cadata=clients)
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(pair.key + pair.certificate)
        context.load_cert_chain(file.name)
    return context


class _TlsStream:
    """One encrypted connection, as the server sees it.

    That of asyncio ends a failed handshake without the alert that tells a client why.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, context: ssl.SSLContext) -> None:
        self._reader = reader
        self._writer = writer
        self._received, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._received, self._to_send, server_side=True)

    async def handshake(self) -> None:
        """Negotiate, and tell the client if that fails."""
        await self._run(self.tls.do_handshake)

    async def read(self, most: int) -> bytes:
        """Return what the client sends next; nothing at the end."""
        return await self._run(lambda: self.tls.read(most))

    async def readexactly(self, size: int) -> bytes:
        """Return this many bytes of the client."""
        found = b""
        while len(found) < size:
            found += await self.read(size - len(found))
        return found

    def write(self, data: bytes) -> None:
        """Send to the client."""
        self.tls.write(data)
        self._writer.write(self._to_send.read())

    async def drain(self) -> None:
        """Wait until the client has taken most of what was sent."""
        await self._writer.drain()

    async def _run(self, step: Callable[[], _Result]) -> _Result:
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                pass
            finally:
                self._writer.write(self._to_send.read())
                await self._writer.drain()
            data = await self._reader.read(65_536)
            if not data:
                raise ConnectionError
            self._received.write(data)


class TlsFront(LoopbackServer):
    """Listens on a free port of `host`. Without a `pair` it says that it has no TLS, as Postgres does then.

    With the authorities of `clients`, only a role lets itself in that shows a certificate with its name.
    """

    def __init__(
        self,
        postgres_port: int,
        pair: Pair | None,
        host: str = "127.0.0.1",
        *,
        clients: str = "",
        latest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
    ) -> None:
        super().__init__()
        self._postgres_port = postgres_port
        self._latest = latest
        self._clients = clients
        self._context = server_context(pair, clients, latest) if pair else None
        self.host = host
        self.encrypted = 0
        self.plain = 0

    def exchange(self, pair: Pair, clients: str = "") -> None:
        """Use another certificate, and other authorities of clients, for the connections that come from now on."""
        self._clients = clients
        self._context = server_context(pair, clients, self._latest)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Negotiate TLS, and pass on what both sides send."""
        client_in: asyncio.StreamReader | _TlsStream = reader
        client_out: asyncio.StreamWriter | _TlsStream = writer
        first = await reader.readexactly(_REQUEST_BYTES)
        if first[4:] == b"\x04\xd2\x16\x2f":  # SSLRequest
            writer.write(_TLS if self._context else _PLAIN)
            await writer.drain()
            if self._context:
                client_in = client_out = stream = _TlsStream(reader, writer, self._context)
                await stream.handshake()
                self.encrypted += 1
            first = b""
        if self._clients and isinstance(client_in, _TlsStream):
            first = await client_in.readexactly(4)
            first += await client_in.readexactly(int.from_bytes(first) - 4)
            refusal = _refusal(first, client_in.tls.getpeercert())
            if refusal:
                client_in.write(_fatal(refusal))
                await client_in.drain()
                return
        self.plain += self._context is None or (bool(first) and not self._clients)
        from_postgres, upstream = await asyncio.open_connection("127.0.0.1", self._postgres_port)
        try:
            upstream.write(first)
            await asyncio.gather(_pass_on(client_in, upstream), _pass_on(from_postgres, client_out))
        finally:
            upstream.transport.abort()


def _refusal(startup: bytes, shown: Any) -> str:
    """Why a client is not let in as the role that its startup message names; empty if it is."""
    names = startup[8:].split(b"\0")
    role = names[names.index(b"user") + 1].decode()
    if not shown:
        return _NONE_SHOWN
    subject = {name: value for part in shown["subject"] for name, value in part}
    return "" if subject.get("commonName") == role else _OF_ANOTHER


def _fatal(message: str) -> bytes:
    """The message by which Postgres refuses a client."""
    fields = f"SFATAL\0VFATAL\0C28000\0M{message}\0\0".encode()
    return b"E" + (len(fields) + 4).to_bytes(4) + fields


async def _pass_on(reader: asyncio.StreamReader | _TlsStream, writer: asyncio.StreamWriter | _TlsStream) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    raise ConnectionError
