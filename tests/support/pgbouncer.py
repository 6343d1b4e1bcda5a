"""A real PgBouncer on a loopback port."""

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from devcluster.errors import DevclusterError
from devcluster.preflight import search_path
from tests.support.ports import reserved_ports
from tests.support.postgres_instance import APP_PASSWORD, APP_ROLE, SYSTEM_USER

_START_SECONDS = 30.0
_LOG_END = 500


@dataclass(frozen=True)
class Pooler:
    """A pooler that runs: its port on the loopback interface, and its process."""

    port: int
    pid: int

    def dsn(self, database: str) -> str:
        """Return the connection string of a database as the pooler names it."""
        return f"postgresql://{APP_ROLE}:{APP_PASSWORD}@127.0.0.1:{self.port}/{database}"


@asynccontextmanager
async def running_pgbouncer(
    servers: Mapping[str, str], *, mode: str = "transaction", pool_size: int = 2
) -> AsyncIterator[Pooler]:
    """Run a pooler for the block.

    `servers` says for each name of a database where it is, in PgBouncer's words. `pool_size` is the number of
    connections to each.

    Raises:
        DevclusterError: PgBouncer is not installed, or did not start; the message has the end of what it said.
    """
    program = pgbouncer_program()
    directory = Path(tempfile.mkdtemp(prefix="memory-index-pgbouncer-"))  # below nothing that its user cannot enter
    user = SYSTEM_USER if os.geteuid() == 0 else None  # it refuses to run as root
    with reserved_ports(1) as (port,):
        settings = _write_settings(directory, servers, port=port, mode=mode, pool_size=pool_size)
        if user:
            _give(directory, user)
        process = await asyncio.create_subprocess_exec(
            program, str(settings), user=user, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            await _until_it_listens(port, process, directory / "log")
            yield Pooler(port, process.pid)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            shutil.rmtree(directory)


def settings_text(servers: Mapping[str, str], port: int, options: Mapping[str, object]) -> str:
    """Return the settings file of a pooler on a loopback port, with further options by their names."""
    databases = "".join(f"{name} = {where}\n" for name, where in servers.items())
    everywhere = {"listen_addr": "127.0.0.1", "unix_socket_dir": "", "ignore_startup_parameters": "lock_timeout"}
    lines = "".join(f"{name} = {value}\n" for name, value in {**everywhere, "listen_port": port, **options}.items())
    return f"[databases]\n{databases}[pgbouncer]\n{lines}"


def pgbouncer_program() -> str:
    """Return the path of PgBouncer.

    Raises:
        DevclusterError: it is not installed.
    """
    program = shutil.which("pgbouncer", path=search_path())
    if program is None:
        raise DevclusterError("pgbouncer is not installed", remedy="run `make host` as root, or install it")
    return program


def _write_settings(directory: Path, servers: Mapping[str, str], *, port: int, mode: str, pool_size: int) -> Path:
    users, settings = directory / "users.txt", directory / "pgbouncer.ini"
    users.write_text(f'"{APP_ROLE}" "{APP_PASSWORD}"\n', encoding="utf-8")
    authentication = {"auth_type": "scram-sha-256", "auth_file": users, "logfile": directory / "log"}
    options = {**authentication, "pool_mode": mode, "default_pool_size": pool_size}
    settings.write_text(settings_text(servers, port, options), encoding="utf-8")
    return settings


def _give(directory: Path, user: str) -> None:
    for path in (directory, *directory.iterdir()):
        shutil.chown(path, user)


def _end_of(log: Path) -> str:
    return log.read_text(encoding="utf-8")[-_LOG_END:] if log.exists() else ""


async def _until_it_listens(port: int, process: asyncio.subprocess.Process, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.returncode is None:
        try:
            _reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return
    raise DevclusterError("pgbouncer did not start", detail=_end_of(log))
