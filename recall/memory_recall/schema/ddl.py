"""How migrations change a table that others are using.

An ALTER TABLE that waits for its lock makes every later statement wait behind it. So each step is one statement of
its own transaction under a short `lock_timeout`; when the lock is not to be had at once, it lets the others pass and
tries again. Building indexes CONCURRENTLY is the exception: it may wait long for a weak lock that blocks nobody.

This module is what revisions import, so its names stay as they are once released.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

import asyncio
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from alembic import op
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.util import await_only

from memory_recall.errors import LockNotAvailable
from memory_recall.schema.table import MemoryTable, quoted
from memory_recall.schema.table_locks import LOCK_TIMEOUT_MS, wait_for_maintenance

_LOCK_NOT_AVAILABLE = ("55P03", "40P01")


@dataclass(frozen=True)
class TargetModel:
    """The embedding model whose vectors the column is for."""

    name: str
    dimensions: int
    pooling: str | None
    max_tokens: int | None
    query_prefix: str
    document_prefix: str


@dataclass(frozen=True)
class MigrationTarget:
    """What the migrations are to bring about, and the table as it was found."""

    table: MemoryTable
    model: TargetModel
    index_m: int
    index_ef_construction: int
    discard_existing_vectors: bool
    lock_patience_seconds: float


def sqlstate(error: DBAPIError) -> str:
    """The SQLSTATE that Postgres gave, or nothing."""
    return str(getattr(error.orig, "sqlstate", None) or "")


class Steps:
    """Runs the statements of one revision, each in its own transaction."""

    def __init__(self, connection: Connection, target: MigrationTarget) -> None:
        self._connection = connection
        self.target = target

    def run(self, statement: str) -> int:
        """Run one statement that needs its lock only for a moment; returns how many rows it changed.

        Raises:
            LockNotAvailable: the lock was not to be had within the target's patience.
        """
        deadline = time.monotonic() + self.target.lock_patience_seconds
        while True:
            try:
                return self._connection.exec_driver_sql(statement).rowcount
            except DBAPIError as error:
                if sqlstate(error) not in _LOCK_NOT_AVAILABLE:
                    raise
            self._wait_for_maintenance()
            if time.monotonic() > deadline:
                raise LockNotAvailable(
                    f"Table {self.target.table.name} stayed locked by other sessions for "
                    f"{self.target.lock_patience_seconds:.0f} s.",
                    "Look for a long transaction in pg_stat_activity, end it, and run this again.",
                )
            # Alembic's code is synchronous but runs on the event loop, which must not stand still meanwhile.
            await_only(asyncio.sleep(random.uniform(0.05, 0.5)))  # noqa: S311  (jitter, not a secret)

    def _wait_for_maintenance(self) -> None:
        if not self.target.table.exists:
            return
        try:
            self._connection.exec_driver_sql(together(wait_for_maintenance(self.target.table)))
        except DBAPIError as error:
            if sqlstate(error) not in _LOCK_NOT_AVAILABLE:
                raise

    def run_together(self, statements: list[str]) -> None:
        """Run statements that need their lock only for a moment, all of them or none."""
        self.run(together(statements))

    def value(self, query: str) -> object:
        """The first column of the first row."""
        return self._connection.exec_driver_sql(query).scalar()

    def repeat_until_done(self, statement: str) -> None:
        """Run a batch update again and again until it changes nothing."""
        while self.run(statement) > 0:
            pass

    def build_index(self, name: str, definition: str) -> None:
        """Create an index without blocking writers; what an interrupted build left behind is dropped first."""
        schema = self.target.table.schema
        valid = self.value(
            "SELECT i.indisvalid AND i.indisready FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
            f"JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = {literal(schema)} "
            f"AND c.relname = {literal(name)}"
        )
        if valid is True:
            return
        with self._unlimited_waiting():
            if valid is False:
                self._connection.exec_driver_sql(f"DROP INDEX CONCURRENTLY IF EXISTS {quoted(schema)}.{quoted(name)}")
            self._connection.exec_driver_sql(f"CREATE INDEX CONCURRENTLY {quoted(name)} {definition}")

    def drop_index(self, name: str) -> None:
        """Drop an index without blocking writers."""
        with self._unlimited_waiting():
            self._connection.exec_driver_sql(
                f"DROP INDEX CONCURRENTLY IF EXISTS {quoted(self.target.table.schema)}.{quoted(name)}"
            )

    @contextmanager
    def _unlimited_waiting(self) -> Iterator[None]:
        self._connection.exec_driver_sql("SET lock_timeout = 0")
        try:
            yield
        finally:
            self._connection.exec_driver_sql(f"SET lock_timeout = {LOCK_TIMEOUT_MS}")


def together(statements: list[str]) -> str:
    """One statement that runs several, in one transaction whatever the driver does about transactions."""
    body = " ".join(f"EXECUTE {literal(statement)};" for statement in statements)
    return f"DO LANGUAGE plpgsql {literal(f'BEGIN {body} END')}"


def literal(text: str) -> str:
    """A string as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


@contextmanager
def steps() -> Iterator[Steps]:
    """The current revision's steps; each commits at once, so an interrupted revision is run again from its start."""
    context = op.get_context()
    if context.config is None:
        msg = "migrations run with a configuration"
        raise RuntimeError(msg)
    target: MigrationTarget = context.config.attributes["target"]
    with context.autocommit_block():
        connection = op.get_bind()
        connection.exec_driver_sql(f"SET lock_timeout = {LOCK_TIMEOUT_MS}")
        yield Steps(connection, target)
