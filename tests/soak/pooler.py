"""A PgBouncer inside the cluster's network, in transaction mode, in front of the database of one store."""

import os
import shutil
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from devcluster.drivers.node import NodeCluster
from devcluster.errors import DevclusterError
from devcluster.retrying import until
from tests.support.pgbouncer import pgbouncer_program, settings_text

PORT = 6432
_USER = "nobody"  # it refuses to run as root
_START_SECONDS, _ENDED_SECONDS = 20, 10
_OPTIONS = {
    "auth_type": "any",
    "pool_mode": "transaction",
    "default_pool_size": 4,
    "server_connect_timeout": 3,
    "server_login_retry": 1,
    "server_tls_sslmode": "prefer",
}
_RUNNING = "process up"  # what it logs when it listens


class Pooler:
    """One PgBouncer. It lets everybody in, and has the password of the database.

    `ended` counts how often it ended by itself and was started again.
    """

    def __init__(self, cluster: NodeCluster, dsn: str) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="soak-pooler-"))  # below nothing that the user cannot enter
        shutil.chown(self._directory, _USER)
        self._settings = self._directory / "pgbouncer.ini"
        self._write(dsn)
        # The signal by which it ends with its parent has to be asked for anew, since another user's process has none.
        as_user = ["setpriv", f"--reuid={_USER}", "--clear-groups", "--pdeathsig=KILL"]
        self._command = [*as_user, pgbouncer_program(), str(self._settings)]
        self._cluster = cluster
        self._file = cluster.logs / "pgbouncer.log"
        self._log = self._file.open("ab")
        self.ended = 0
        self._process = self._started()

    def dsn(self, direct: str) -> str:
        """Return the connection string by which clients reach the pooler."""
        parts = urlsplit(direct)
        return f"postgresql://{parts.username}@127.0.0.1:{PORT}{parts.path}"

    def revive(self) -> None:
        """Start the pooler again if it has ended by itself, as its Deployment would.

        Raises:
            DevclusterError: it does not run within 20 s; another call may try again.
        """
        if self._process.poll() is not None:
            self._process = self._started()
            self.ended += 1

    def follow(self, dsn: str) -> None:
        """Use another password from now on."""
        self._write(dsn)
        for pid in self._processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGHUP)

    def close(self) -> None:
        """End the pooler."""
        self._process.terminate()
        try:
            self._process.wait(_ENDED_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._log.close()
        shutil.rmtree(self._directory)

    def _started(self) -> "subprocess.Popen[bytes]":
        said = self._file.stat().st_size
        process = self._cluster.popen_in_network(self._command, stdout=self._log, stderr=self._log)

        def runs() -> bool:
            text = self._file.read_bytes()[said:].decode()
            if process.poll() is not None:
                raise DevclusterError("PgBouncer ended at its start", detail=text[-1000:], remedy=f"see {self._file}")
            return _RUNNING in text

        try:
            until("PgBouncer runs", runs, seconds=_START_SECONDS)
        except DevclusterError:
            process.kill()
            raise
        return process

    def _write(self, dsn: str) -> None:
        parts = urlsplit(dsn)
        name = parts.path.strip("/")
        server = f"host={parts.hostname} port={parts.port} user={parts.username} password={parts.password}"
        partial = self._settings.with_suffix(".partial")
        partial.write_text(settings_text({name: server}, PORT, _OPTIONS), encoding="utf-8")
        shutil.chown(partial, _USER)
        partial.chmod(0o600)
        partial.rename(self._settings)

    def _processes(self) -> list[int]:
        """Return the pooler's process; that which was started waits for it."""
        wanted = str(self._settings).encode()
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit():
                    arguments = (entry / "cmdline").read_bytes().split(b"\0")
                    if arguments[0].endswith(b"pgbouncer") and wanted in arguments:
                        found.append(int(entry.name))
        return found
