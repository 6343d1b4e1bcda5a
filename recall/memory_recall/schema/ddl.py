"""Changes a table while other sessions use it.

An ALTER TABLE that waits for its lock makes every later statement on the table wait, too. Therefore each change is one
statement in its own transaction with a short `lock_timeout`. If the lock is not free in time, the change lets the
waiting statements pass and tries again. Building an index CONCURRENTLY is the exception: it may wait long for its weak
lock, which blocks nobody.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from memory_recall.errors import LockNotAvailable
from memory_recall.postgres.connection import Connection
from memory_recall.postgres.driver_errors import translated
from memory_recall.retrying import TABLE_LOCK_BACKOFF, caused_by, retry
from memory_recall.schema.table import MemoryTable, quoted
from memory_recall.schema.table_locks import LOCK_TIMEOUT_MS, wait_for_maintenance


@dataclass(frozen=True)
class TableChanges:
    """Runs the statements that change one table, each in its own transaction."""

    connection: Connection
    table: MemoryTable
    lock_seconds: float

    async def run(self, statement: str) -> int:
        """Run one statement that holds its lock only for a moment; return how many rows it changed.

        Raises:
            LockNotAvailable: the lock was not free within `lock_seconds`.
        """

        async def attempt() -> int:
            try:
                return await self._execute(statement)
            except LockNotAvailable:
                with suppress(LockNotAvailable):
                    if self.table.exists:
                        await self._execute(in_one_transaction(wait_for_maintenance(self.table)))
                raise

        try:
            return await retry(
                attempt,
                on=caused_by(LockNotAvailable),
                give_up_after=self.lock_seconds,
                backoff=TABLE_LOCK_BACKOFF,
            )
        except LockNotAvailable:
            raise LockNotAvailable(
                f"Table {self.table.name} stayed locked by other sessions for {self.lock_seconds:.0f} s.",
                "Look for a long transaction in pg_stat_activity, end it, and run this again.",
            ) from None

    async def run_together(self, statements: list[str]) -> None:
        """Run statements that hold their locks only for a moment, all of them in one transaction."""
        await self.run(in_one_transaction(statements))

    async def value(self, query: str) -> object:
        """Run a query; return the first column of its first row, or None if there are no rows."""
        with translated("changing the schema"):
            found: object = await self.connection.fetchval(query)
        return found

    async def repeat_until_done(self, statement: str) -> None:
        """Run an update of a limited number of rows again and again, until it changes no row."""
        while await self.run(statement) > 0:
            pass

    async def build_index(self, name: str, definition: str) -> None:
        """Create an index without blocking writers, unless it exists; an invalid index of this name is dropped."""
        valid = await self.value(
            "SELECT i.indisvalid AND i.indisready FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
            f"JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = {literal(self.table.schema)} "
            f"AND c.relname = {literal(name)}"
        )
        if valid is True:
            return
        async with self._unlimited_waiting():
            if valid is False:
                await self._execute(f"DROP INDEX CONCURRENTLY IF EXISTS {self.table.in_schema(name)}")
            await self._execute(f"CREATE INDEX CONCURRENTLY {quoted(name)} {definition}")

    async def drop_index(self, name: str) -> None:
        """Drop an index without blocking writers."""
        async with self._unlimited_waiting():
            await self._execute(f"DROP INDEX CONCURRENTLY IF EXISTS {self.table.in_schema(name)}")

    async def limit_waiting(self) -> None:
        """Limit how long this session waits for a lock, because other sessions wait behind it."""
        await self._execute(f"SET lock_timeout = {LOCK_TIMEOUT_MS}")

    @asynccontextmanager
    async def _unlimited_waiting(self) -> AsyncIterator[None]:
        await self._execute("SET lock_timeout = 0")
        try:
            yield
        finally:
            await self.limit_waiting()

    async def _execute(self, statement: str) -> int:
        with translated("changing the schema"):
            status = await self.connection.execute(statement)
        count = status.rpartition(" ")[2]
        return int(count) if count.isdigit() else 0


def in_one_transaction(statements: list[str]) -> str:
    """Return one SQL statement that runs the given statements in one transaction."""
    body = " ".join(f"EXECUTE {literal(statement)};" for statement in statements)
    return f"DO LANGUAGE plpgsql {literal(f'BEGIN {body} END')}"


def literal(text: str) -> str:
    """Return a text as an SQL literal, which means the same whatever `standard_conforming_strings` is."""
    doubled = text.replace("'", "''")
    return "E'" + doubled.replace("\\", "\\\\") + "'" if "\\" in text else f"'{doubled}'"
