"""TLS of connections to Postgres: how much of it is demanded, how a server is verified, and what it is shown.

The TLS context is built here, from certificates in memory. The driver would otherwise look for files and variables of
its own. The stricter of what the connection string demands and what the settings demand counts.
"""

import ssl
from dataclasses import dataclass, field
from enum import StrEnum
from functools import total_ordering
from pathlib import Path
from typing import TypeAlias

from memory_recall.errors import InvalidConfiguration
from memory_recall.postgres.client_certificate import ClientCertificate

LONGEST_CA = 256 * 1024  # characters of a file of certificates; the public authorities together take some 220 KiB
_BEGIN = "-----BEGIN CERTIFICATE-----"
_END = "-----END CERTIFICATE-----"
_PROTOCOL = "postgresql"  # the name by which Postgres 17 and later know their protocol in TLS
_REMEDY = "Give the certificates of the certificate authority that signs the server's certificate, in PEM form."

Certificates: TypeAlias = str | Path


@total_ordering
class TlsMode(StrEnum):
    """How much TLS a connection needs, from the least to the most; the values are those of libpq's `sslmode`.

    `prefer` takes what the server offers. `verify-ca` also verifies who has signed the server's certificate, and
    `verify-full` also that the certificate is that of the host.
    """

    DISABLE = "disable"
    PREFER = "prefer"
    REQUIRE = "require"
    VERIFY_CA = "verify-ca"
    VERIFY_FULL = "verify-full"

    def __lt__(self, other: object) -> bool:
        """Compare how much is demanded."""
        order = list(TlsMode)
        return order.index(self) < order.index(other) if isinstance(other, TlsMode) else NotImplemented


@dataclass(frozen=True)
class DatabaseTls:
    """The least TLS that connections to a database need, the authority that they trust, and what they show of us.

    Attributes:
        mode: the least TLS; by default `verify-full` if there are certificates of an authority, `require` if there is
            only a client certificate, else what the connection string says.
        ca: the certificates of the authority as PEM text, or the path of a file that holds them, which is read anew at
            each connect. Without them `verify-full` trusts the public authorities that this machine knows.
        client: the certificate by which the role of the connection string logs in; None if it has a password.
    """

    mode: TlsMode | None = None
    ca: Certificates | None = field(default=None, repr=False)
    client: ClientCertificate | None = None

    def mode_of(self, demanded: TlsMode | None) -> TlsMode:
        """Return the stricter of the settings' mode and that of the connection string, which may be None."""
        own = self.mode or (TlsMode.VERIFY_FULL if self.ca else TlsMode.DISABLE)
        needed = TlsMode.REQUIRE if self.client else TlsMode.DISABLE  # a certificate is shown over TLS alone
        return max(own, needed, demanded or TlsMode.PREFER)

    def context(self, mode: TlsMode) -> ssl.SSLContext | None:
        """Return the TLS context of a connection with this mode, or None if it uses no TLS.

        Raises:
            InvalidConfiguration: the certificates, or the key of that of the client, are missing or unusable.
        """
        if mode is TlsMode.DISABLE:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols([_PROTOCOL])
        context.check_hostname = mode is TlsMode.VERIFY_FULL
        if self.client is not None:
            self.client.load(context)
        if mode < TlsMode.VERIFY_CA:
            context.verify_mode = ssl.CERT_NONE
        elif self.ca is not None:
            _load(context, _text(self.ca))
        elif mode is TlsMode.VERIFY_FULL:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        else:
            raise InvalidConfiguration(
                "verify-ca verifies who has signed the server's certificate, and no certificate authority is given.",
                "Name its certificates in spec.database.tls.caSecret (outside of Kubernetes, in "
                "MEMORY_DATABASE_CA_FILE), or use verify-full, which also trusts the public authorities.",
            )
        return context


AS_WRITTEN = DatabaseTls()  # what the connection string says


def only_certificates(text: str) -> str:
    """Return the certificates of a PEM text and nothing else of it, such as private keys; empty if it has none."""
    blocks = [part.partition(_END) for part in text.split(_BEGIN)[1:]]
    return "".join(f"{_BEGIN}\n{body.strip()}\n{_END}\n" for body, end, _ in blocks if end)


def check_certificates(text: str) -> None:
    """Check that a PEM text holds certificates that TLS can use.

    Raises:
        InvalidConfiguration: the text is too long, or holds no certificate, or a malformed one.
    """
    _load(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), text)


def _text(certificates: Certificates) -> str:
    if isinstance(certificates, str):
        return certificates
    try:
        with certificates.open(encoding="ascii", errors="replace") as file:
            return file.read(LONGEST_CA + 1)
    except OSError as error:
        raise InvalidConfiguration(
            f"The file of the certificate authority, {certificates}, cannot be read ({type(error).__name__}).", _REMEDY
        ) from None


def _load(context: ssl.SSLContext, text: str) -> None:
    found = only_certificates(text)
    if len(text) > LONGEST_CA or not found:
        raise InvalidConfiguration(
            f"The certificate authority of the database is no PEM text of certificates below {LONGEST_CA >> 10} KiB.",
            _REMEDY,
        )
    try:
        context.load_verify_locations(cadata=found)
    except (ssl.SSLError, ValueError):
        raise InvalidConfiguration("A certificate of the database's authority is malformed.", _REMEDY) from None
