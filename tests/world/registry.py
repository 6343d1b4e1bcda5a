"""A registry with TLS and a login, run on this machine or in a cluster's network."""

import contextlib
import os
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from devcluster.building.binaries import Binaries
from devcluster.node.pki import Authority
from devcluster.retrying import until

HOST = "localhost:5443"
USER, PASSWORD = "publisher", "released"
# What `htpasswd -B` makes of the password, with the least cost.
_HASHED = "$2b$05$vHdGWnogSKhtkCO69YBjkeJ7WphGdRJ71IjWqdoFrJ9YAwnfB4N.W"
_CONFIGURATION = """\
version: 0.1
storage: {{filesystem: {{rootdirectory: {directory}/stored}}}}
auth: {{htpasswd: {{realm: release, path: {directory}/htpasswd}}}}
http: {{addr: "127.0.0.1:5443", tls: {{certificate: {directory}/tls.crt, key: {directory}/tls.key}}}}
"""


class OwnRegistry:
    """The files of a registry: what is stored, its certificate and authority, its user, and a client's login."""

    def __init__(self, directory: Path, binaries: Binaries) -> None:
        self.directory = directory
        self._binaries = binaries
        directory.mkdir()
        authority = Authority()
        served = authority.server("localhost")
        files = {
            "ca.crt": authority.certificate,
            "tls.crt": served.certificate,
            "tls.key": served.key,
            "htpasswd": f"{USER}:{_HASHED}\n".encode(),
            "config.yml": _CONFIGURATION.format(directory=directory).encode(),
        }
        for name, content in files.items():
            (directory / name).write_bytes(content)

    @property
    def authority(self) -> Path:
        """The certificate of the authority by which the registry is verified."""
        return self.directory / "ca.crt"

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which clients trust the registry and are logged in."""
        return {"SSL_CERT_FILE": str(self.authority), "DOCKER_CONFIG": str(self.directory / "docker")}

    @contextlib.contextmanager
    def running(self, in_network: Callable[[Sequence[str]], list[str]] = list) -> Iterator[None]:
        """Run the registry for the block; `in_network` turns a command line into one for another network."""
        command = in_network([str(self._binaries.path("registry")), "serve", str(self.directory / "config.yml")])
        with (self.directory / "log").open("ab") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
            try:
                crane = str(self._binaries.path("crane"))
                login = [crane, "auth", "login", HOST, "-u", USER, "-p", PASSWORD]
                assert _succeeds(login, self.environment)
                listed = in_network([crane, "catalog", HOST])
                until("the registry answers", lambda: _succeeds(listed, self.environment), seconds=60)
                yield
            finally:
                process.terminate()

    def refusals(self) -> dict[str, bool]:
        """Return whether the registry, while it runs on this machine, refuses who is not logged in, and is refused
        by who does not know its authority.
        """
        return {"without login": _answer(self.authority) == 401, "by another authority": _answer(None) is None}


def _answer(authority: Path | None) -> int | None:
    """Return the status that the registry answers without a login, or None if its certificate is refused."""
    context = ssl.create_default_context(cafile=str(authority) if authority else None)
    try:
        with urllib.request.urlopen(f"https://{HOST}/v2/", timeout=10, context=context) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except urllib.error.URLError as error:
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            return None
        raise


def _succeeds(command: Sequence[str], environment: dict[str, str]) -> bool:
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, check=False, timeout=30)
    return done.returncode == 0
