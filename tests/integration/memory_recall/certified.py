"""A server that lets a role in by its certificate, and the files by which the role shows one."""

from pathlib import Path
from typing import Any

from devcluster.node.pki import Authority, Pair
from memory_recall.postgres.client_certificate import ClientCertificate
from memory_recall.postgres.tls import DatabaseTls
from tests.integration.conftest import Database
from tests.integration.memory_recall import tls_front
from tests.integration.memory_recall.tls_front import TlsFront
from tests.support.postgres_instance import CERTIFIED_ROLE

SERVERS, CLIENTS = tls_front.Authority(), Authority()
SERVER, CA = SERVERS.server("pg"), SERVERS.certificate
_NAMES = ("tls.crt", "tls.key")
OURS = CLIENTS.client(CERTIFIED_ROLE, "")


def front(database: Database, **settings: Any) -> TlsFront:
    """A server that lets roles in by certificates of `CLIENTS` alone."""
    given = {"clients": CLIENTS.certificate.decode(), **settings}
    return TlsFront(database.server.port, SERVER, **given)


def dsn(database: Database, server: TlsFront, role: str = CERTIFIED_ROLE) -> str:
    """A connection string without a password."""
    return f"postgresql://{role}@127.0.0.1:{server.port}/{database.name}"


def shown(pair: Pair) -> DatabaseTls:
    return DatabaseTls(ca=CA, client=ClientCertificate(pair.certificate.decode(), pair.key.decode()))


class Mounted:
    """A folder with the files of a Secret, which are exchanged at once, as Kubernetes does."""

    def __init__(self, folder: Path, pair: Pair) -> None:
        self._folder = folder
        self._written = 0
        folder.mkdir()
        self.write(pair)
        for name in _NAMES:
            (folder / name).symlink_to(Path("..data", name))

    def write(self, pair: Pair) -> None:
        """Exchange certificate and key."""
        self._written += 1
        version = self._folder / f"..{self._written}"
        version.mkdir()
        for name, content in zip(_NAMES, (pair.certificate, pair.key), strict=True):
            (version / name).write_bytes(content)
        link = self._folder / "..data_tmp"
        link.symlink_to(version.name)
        link.rename(self._folder / "..data")

    @property
    def certificate(self) -> ClientCertificate:
        """The mounted files."""
        return ClientCertificate(*(self._folder / name for name in _NAMES))
