"""Files of a certificate and its key, as cert-manager and the kubelet put them into a volume."""

import datetime
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from devcluster.node.pki import Authority, Pair

A_LIFETIME_AGO = datetime.timedelta(days=400)


@dataclass
class ServingFiles:
    """A volume of a Secret: the files are symbolic links into a folder that is exchanged as a whole."""

    folder: Path
    authority: Authority = field(default_factory=Authority)
    _versions: int = 0

    def __post_init__(self) -> None:
        """Put a first certificate there."""
        self.folder.mkdir(exist_ok=True)
        self.rotate()
        for name in ("tls.crt", "tls.key"):
            (self.folder / name).symlink_to(Path("..data") / name)

    @property
    def certificate(self) -> Path:
        """The file of the certificate."""
        return self.folder / "tls.crt"

    @property
    def key(self) -> Path:
        """The file of the key."""
        return self.folder / "tls.key"

    @property
    def options(self) -> tuple[str, ...]:
        """The options by which the embedder serves these files."""
        return "--tls-certificate-file", str(self.certificate), "--tls-key-file", str(self.key)

    def rotate(self) -> Pair:
        """Exchange both files for a new certificate of the same authority."""
        pair = self.authority.server("localhost")
        self.write(pair.certificate, pair.key)
        return pair

    def write(self, certificate: bytes, key: bytes) -> None:
        """Exchange both files at once, as the kubelet does."""
        self._versions += 1
        version = self.folder / f"..{self._versions}"
        version.mkdir()
        (version / "tls.crt").write_bytes(certificate)
        (version / "tls.key").write_bytes(key)
        link = self.folder / "..new"
        link.symlink_to(version.name)
        link.rename(self.folder / "..data")

    def client(self, authority: Authority | None = None) -> ssl.SSLContext:
        """The context of a client that trusts the authority of these certificates, or another one."""
        return ssl.create_default_context(cadata=(authority or self.authority).certificate.decode())


def expired() -> Pair:
    """A certificate that has expired."""
    return Authority(datetime.datetime.now(datetime.UTC) - A_LIFETIME_AGO).server("localhost")


def not_yet_valid() -> Pair:
    """A certificate that will be valid."""
    return Authority(datetime.datetime.now(datetime.UTC) + A_LIFETIME_AGO).server("localhost")
