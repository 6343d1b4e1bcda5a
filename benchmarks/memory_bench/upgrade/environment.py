"""Where databases are upgraded: a Postgres server, a light embedder, and the commands of this checkout."""

import asyncio
import os
import socket
import sys
import threading
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import asyncpg
import uvicorn

from memory_bench.postgres import MeasuredServer
from memory_bench.swap.embedder import application
from memory_bench.swap.models import DIMENSIONS, MODELS
from memory_bench.upgrade.states import DUMP, StartingState
from tests.support.recalling.loop import SCRIPT, CommandFailed

MODEL = "first"
_OWNER = "app"
_ROOT = Path(__file__).resolve().parents[3]


class UpgradeEnvironment:
    """A Postgres server, and the base URL of an embedder that serves the model `first`."""

    def __init__(self, server: MeasuredServer, embedder_url: str) -> None:
        self._server = server
        self._embedder_url = embedder_url

    async def restore(self, state: StartingState) -> None:
        """Create the database of a starting state, named after the state, from the dump of the baseline."""
        await self._server.execute(f'CREATE DATABASE "{state.name}" OWNER {_OWNER}')
        await self._server.execute("CREATE EXTENSION vector", database=state.name)
        async with self.connection(state.name) as connection:
            await connection.execute(DUMP.read_text(encoding="utf-8"))
        if state.change is not None:
            async with self.connection(state.name) as connection:
                await connection.execute(state.change)

    @asynccontextmanager
    async def connection(self, database: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
        """Open a connection as the database's owner, and close it when the block ends."""
        connection = await asyncpg.connect(self._dsn(database))
        try:
            yield connection
        finally:
            await connection.close()

    async def memory(self, database: str, *arguments: str) -> str:
        """Run the `memory` command on a database to its end and return its standard output.

        Raises:
            CommandFailed: the command failed.
        """
        process = await self._python(database, "-m", "memory_recall", *arguments)
        out, error = await process.communicate()
        if process.returncode:
            said = error.decode()[-600:].strip()
            raise CommandFailed(f"memory {' '.join(arguments)} ended with status {process.returncode}: {said}")
        return out.decode()

    async def spawn_recalls(self, database: str) -> Process:
        """Start a process that recalls from a database again and again."""
        return await self._python(database, str(SCRIPT))

    async def _python(self, database: str, *arguments: str) -> Process:
        variables = {
            **{name: value for name, value in os.environ.items() if not name.startswith("MEMORY_")},
            "MEMORY_DATABASE_URL": self._dsn(database),
            "MEMORY_MODEL": MODEL,
            "MEMORY_DIMENSIONS": str(DIMENSIONS),
            "MEMORY_EMBEDDER_URL": self._embedder_url,
        }
        return await asyncio.create_subprocess_exec(
            sys.executable, *arguments, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=_ROOT, env=variables
        )

    def _dsn(self, database: str) -> str:
        """Return the connection string of a database's owner, a role without superuser rights."""
        return self._server.dsn(database).replace("postgres:@", f"{_OWNER}:@", 1)


@asynccontextmanager
async def running_environment() -> AsyncIterator[UpgradeEnvironment]:
    """Run a Postgres server and an embedder until the block ends."""
    with _serving(MODEL) as url:
        async with MeasuredServer() as server:
            await server.execute(f"CREATE ROLE {_OWNER} LOGIN")
            yield UpgradeEnvironment(server, url)


@contextmanager
def _serving(model: str) -> Iterator[str]:
    """Serve a light model from a thread and yield its base URL; requests wait until the server has started."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(application(MODELS[model]), log_config=None))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
