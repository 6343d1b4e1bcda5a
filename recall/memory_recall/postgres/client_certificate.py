"""Client certificates: how a role logs in that has no password, where `pg_hba` of the server demands `cert`.

Certificate and key are named by the settings of this process or given by the operator, never by a connection string,
whose author could otherwise have any file of this machine opened. Python's TLS reads both from files alone; a key that
is given as text is therefore handed over in a file in memory, which has no name and which no other user can open.
"""

import errno
import os
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from memory_recall.errors import InvalidConfiguration

_LONGEST = 1024 * 1024  # bytes of each file, as in a Secret
_REMEDY = (
    "Give the role's certificate and its key, in PEM form and without a password: tls.crt and tls.key of the Secret "
    "that spec.database.credentials.clientCertificate names, or outside of Kubernetes of the folder that "
    "MEMORY_DATABASE_CERTIFICATE_FOLDER names."
)
_MISMATCH = "KEY_VALUES_MISMATCH"


@dataclass(frozen=True)
class ClientCertificate:
    """The certificate of a role of the database, and its private key.

    Attributes:
        certificate: the certificate, with those of intermediate authorities behind it, as PEM text, or the path of a
            file that holds it, which is read anew at each connect.
        key: the private key, likewise.
    """

    certificate: str | Path = field(repr=False)
    key: str | Path = field(repr=False)

    def load(self, context: ssl.SSLContext) -> None:
        """Have the connections of a TLS context show this certificate.

        Raises:
            InvalidConfiguration: the certificate or its key is missing or unusable, or they are not of each other.
        """
        with ExitStack() as stack:
            try:
                files = [stack.enter_context(_file(part)) for part in (self.certificate, self.key)]
                try:
                    _load(context, *files)
                except ssl.SSLError as error:
                    if error.reason != _MISMATCH:
                        raise
                    _load(context, *files)  # both were exchanged after the first of them had been read
            except ssl.SSLError as error:
                raise InvalidConfiguration(f"{self._named} {_fault(error)}.", _REMEDY) from None
            except OSError as error:
                raise InvalidConfiguration(f"{self._named} cannot be read ({type(error).__name__}).", _REMEDY) from None

    @property
    def _named(self) -> str:
        paths = [str(part) for part in (self.certificate, self.key) if isinstance(part, Path)]
        return " of ".join(("The client certificate", " and ".join(paths))) if paths else "The client certificate"


def _load(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    # Without a password, OpenSSL would ask for that of an encrypted key on the terminal.
    context.load_cert_chain(certificate, key, password=lambda: "")


def _fault(error: ssl.SSLError) -> str:
    """Return what is wrong as the rest of a sentence. OpenSSL's own text is left out, since it may quote the files."""
    if error.reason == _MISMATCH:
        return "does not belong to its key"
    return "and its key are no PEM text of a certificate and a key without a password"


@contextmanager
def _file(part: str | Path) -> Iterator[Path]:
    """Yield the path of a file that holds a certificate or key: the one given, or one in memory with the text given."""
    if isinstance(part, Path):
        if part.stat().st_size > _LONGEST:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        yield part
        return
    descriptor = os.memfd_create("client-certificate", os.MFD_CLOEXEC)
    try:
        os.fchmod(descriptor, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", closefd=False) as file:
            file.write(part)
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
