"""The environment in which starting states are made: a Postgres server, embedders, and commands of former commits."""

import asyncio
import socket
import threading
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import asyncpg
import uvicorn

from memory_bench.postgres import MeasuredServer
from memory_bench.swap.embedder import application
from memory_bench.swap.models import DIMENSIONS, MODELS
from memory_bench.upgrade.former import Sources, output_of
from tests.support.invented import texts
from tests.support.recalling.loop import CommandFailed

ROWS = 300
_OWNER = "app"
_SCRIPTS = Path(__file__).with_name("former_scripts")
_POLL_SECONDS = 0.05
_END_SESSIONS = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
    "WHERE application_name LIKE 'memory-%' AND datname = current_database()"
)
_TIMEOUT_SECONDS = 120


@contextmanager
def serving(model: str) -> Iterator[str]:
    """Serve a light model from a thread and yield its base URL; requests wait until the server has started."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(application(MODELS[model]), log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


class UpgradeEnvironment:
    """A Postgres server, the base URLs of the embedders by model name, and the former commits' sources by commit."""

    def __init__(self, server: MeasuredServer, urls: Mapping[str, str], former: Mapping[str, Sources]) -> None:
        self.server = server
        self.urls = urls
        self.former = former
        self.texts = texts(ROWS)

    def variables(self, database: str, *, model: str = "first") -> dict[str, str]:
        """Return the environment variables of a `memory` command that works on `database` with `model`."""
        return {
            "MEMORY_DATABASE_URL": self.dsn(database),
            "MEMORY_MODEL": model,
            "MEMORY_DIMENSIONS": str(DIMENSIONS),
            "MEMORY_EMBEDDER_URL": self.urls[model],
            "MEMORY_LOG_FORMAT": "json",
            "MEMORY_BACKFILL_BATCH_SIZE": "16",
        }

    def dsn(self, database: str) -> str:
        """Return the connection string with which a database's owner, a role without superuser rights, connects."""
        return self.server.dsn(database).replace("postgres:@", f"{_OWNER}:@", 1)

    async def prepare(self) -> None:
        """Create the role that owns all databases."""
        await self.server.execute(f"CREATE ROLE {_OWNER} LOGIN")

    async def create(self, database: str, *, template: str | None) -> None:
        """Create a database, empty or as a copy of `template`; an existing database of that name is dropped first."""
        await self.drop(database)
        source = f'TEMPLATE "{template}"' if template else ""
        await self.server.execute(f'CREATE DATABASE "{database}" OWNER {_OWNER} {source}')

    async def drop(self, database: str) -> None:
        """Drop a database if it exists."""
        await self.server.execute(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')

    async def exists(self, database: str) -> bool:
        """Return whether a database of this name exists."""
        async with self.connection("postgres") as connection:
            return bool(
                await connection.fetchval("SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", database)
            )

    async def create_extension(self, database: str) -> None:
        """Create the extension pgvector as superuser, as CloudNativePG does on the operator's behalf."""
        await self.server.execute("CREATE EXTENSION IF NOT EXISTS vector", database=database)

    async def insert(self, database: str) -> None:
        """Insert the memories; one row in twenty is sensitive, and one other row in twenty is deleted."""
        await self.execute(
            database,
            "INSERT INTO memories (content, is_sensitive, deleted_at) "
            "SELECT text, number % 20 = 7, CASE WHEN number % 20 = 13 THEN now() END "
            "FROM unnest($1::text[]) WITH ORDINALITY AS given (text, number)",
            self.texts,
        )

    async def execute(self, database: str, statement: str, *values: object) -> None:
        """Run one SQL statement as the database's owner."""
        async with self.connection(database) as connection:
            await connection.execute(statement, *values)

    @asynccontextmanager
    async def connection(self, database: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
        """Open a connection as the database's owner, and close it when the block ends."""
        connection = await asyncpg.connect(self.dsn(database))
        try:
            yield connection
        finally:
            await connection.close()

    async def memory(self, commit: str, database: str, *arguments: str, model: str = "first", expected: int = 0) -> str:
        """Run the `memory` command of a former commit to its end, and return its standard output."""
        variables = self.variables(database, model=model)
        return await self.former[commit].memory(*arguments, variables=variables, expected=expected)

    async def spawn(self, commit: str, database: str, *arguments: str, **settings: str) -> Process:
        """Start the `memory` command of a former commit; `settings` are additional environment variables."""
        variables = {**self.variables(database), **settings}
        return await self.former[commit].spawn(*arguments, variables=variables)

    async def spawn_script(self, commit: str, database: str, name: str, *arguments: str) -> Process:
        """Start a script of `former_scripts` with the library of a former commit."""
        path = str(_SCRIPTS / f"{name}.py")
        return await self.former[commit].python(path, *arguments, variables=self.variables(database))

    async def script(self, commit: str, database: str, name: str, *arguments: str, expected: int = 0) -> None:
        """Run a script of `former_scripts` to its end with the library of a former commit."""
        process = await self.spawn_script(commit, database, name, *arguments)
        await output_of(process, name, expected=expected)

    async def kill(self, process: Process, database: str, when: str, *values: str) -> None:
        """Wait until the SQL query `when` returns true, then kill a process and its database sessions.

        Raises:
            CommandFailed: the process ended before the query returned true.
        """
        ending = asyncio.create_task(process.communicate())
        async with self.connection(database) as connection, asyncio.timeout(_TIMEOUT_SECONDS):
            while not await connection.fetchval(when, *values):
                if ending.done():
                    raise CommandFailed(f"It ended before it could be killed: {ending.result()[1].decode()[-600:]}")
                await asyncio.sleep(_POLL_SECONDS)
            process.kill()
            await ending
            # Its sessions would go on with the statement that they are in.
            while await connection.fetchval(_END_SESSIONS):  # noqa: ASYNC110  (it is the server that changes)
                await asyncio.sleep(_POLL_SECONDS)


@asynccontextmanager
async def running_environment(former: Mapping[str, Sources]) -> AsyncIterator[UpgradeEnvironment]:
    """Run a Postgres server and the embedders until the block ends."""
    with serving("first") as first, serving("second") as second:
        async with MeasuredServer() as server:
            environment = UpgradeEnvironment(server, {"first": first, "second": second}, former)
            await environment.prepare()
            yield environment


Make = Callable[[UpgradeEnvironment, str], Awaitable[None]]
