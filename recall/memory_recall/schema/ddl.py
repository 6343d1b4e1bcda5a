"""Changes a table while other sessions use it.

An ALTER TABLE that waits for its lock makes every later statement on the table wait, too. Therefore each change is one
statement in its own transaction with a short `lock_timeout`. If the lock is not free in time, the change lets the
waiting statements pass and tries again. Building an index CONCURRENTLY is the exception: it may wait long for its weak
lock, which blocks nobody.

Postgres cannot index a partitioned table CONCURRENTLY. Therefore an index over its partitions is first created for the
partitioned table alone, where it is invalid and empty. Then the part of each partition is built CONCURRENTLY, one after
another, and attached. With the last part the whole index becomes valid. An interrupted build goes on where it stopped.
"""
# ruff: noqa: S608  (statements are put together from quoted identifiers and our own expressions; values are bound)

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from memory_recall.errors import LockNotAvailable
from memory_recall.postgres.catalog_sql import reading_catalog
from memory_recall.postgres.connection import Connection
from memory_recall.postgres.driver_errors import translated
from memory_recall.retrying import TABLE_LOCK_BACKOFF, caused_by, retry
from memory_recall.schema.partitions import TablePartition
from memory_recall.schema.table import MemoryTable, quoted
from memory_recall.schema.table_locks import LOCK_TIMEOUT_MS, wait_for_maintenance

_UNLIMITED = 0  # milliseconds of lock_timeout


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
            raise self._stayed_locked() from None

    def _stayed_locked(self) -> LockNotAvailable:
        return LockNotAvailable(
            f"Table {self.table.name} stayed locked by other sessions for {self.lock_seconds:.0f} s.",
            "Look for a long transaction in pg_stat_activity, end it, and run this again.",
            waited=True,
        )

    async def run_together(self, statements: list[str]) -> None:
        """Run statements that hold their locks only for a moment, all of them in one transaction."""
        await self.run(in_one_transaction(statements))

    async def value(self, query: str) -> object:
        """Run a query; return the first column of its first row, or None if there are no rows."""
        with translated("changing the schema"):
            found: object = await self.connection.fetchval(query)
        return found

    async def in_catalog(self, query: str) -> object:
        """Run a query of the catalog; return the first column of its first row, or None if there are no rows."""
        async with reading_catalog(self.connection, "changing the schema"):
            return await self.value(query)

    async def repeat_until_done(self, statement: str) -> None:
        """Run an update of a limited number of rows again and again, until it changes no row."""
        while await self.run(statement) > 0:
            pass

    async def build_index(self, name: str, definition: str) -> None:
        """Create an index without blocking writers, unless it exists; an invalid index of this name is dropped.

        `definition` is what follows the name in CREATE INDEX: ON, the table's full name, and the rest.
        """
        valid = await self._validity(self.table.schema, name)
        if valid is True:
            return
        if self.table.is_partitioned:
            async with self._waiting(LOCK_TIMEOUT_MS):
                await self._build_in_partitions(name, definition.removeprefix(f"ON {self.table.qualified} "), valid)
            return
        async with self._waiting(_UNLIMITED):
            if valid is False:
                await self._execute(f"DROP INDEX CONCURRENTLY IF EXISTS {self.table.in_schema(name)}")
            await self._execute(f"CREATE INDEX CONCURRENTLY {quoted(name)} {definition}")

    async def drop_index(self, name: str) -> None:
        """Drop an index without blocking writers; of a partitioned table also the parts that were not attached yet.

        Raises:
            LockNotAvailable: the transactions of other sessions went on for longer than `lock_seconds`.
        """
        if not self.table.is_partitioned:
            await self._drop_concurrently(self.table.in_schema(name))
            return
        async with self._waiting(LOCK_TIMEOUT_MS):
            await self.run(f"DROP INDEX IF EXISTS {self.table.in_schema(name)}")
        for one in self.table.partitions:
            await self._drop_loose_part(one, name)

    async def _validity(self, schema: str, name: str) -> object:
        """Return whether the index of this name is valid, or None if there is none."""
        return await self.in_catalog(
            "SELECT i.indisvalid AND i.indisready FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
            f"JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = {literal(schema)} "
            f"AND c.relname = {literal(name)}"
        )

    async def _build_in_partitions(self, name: str, rest: str, valid: object) -> None:
        parent = self.table.in_schema(name)
        if valid is False and await self._next_without(name) is None:
            await self.run(f"DROP INDEX IF EXISTS {parent}")  # one of its attached parts is invalid
            valid = None
        if valid is None:
            await self.run(f"CREATE INDEX IF NOT EXISTS {quoted(name)} ON ONLY {self.table.qualified} {rest}")
        while (partition := await self._next_without(name)) is not None:
            part = self._part(partition, name)
            if await self.in_catalog(_same_definition(parent, part)) is not True:
                await self._drop_loose_part(partition, name)
                async with self._waiting(_UNLIMITED):
                    await self._execute(
                        f"CREATE INDEX CONCURRENTLY {quoted(partition.index_name(self.table.name, name))} "
                        f"ON {quoted(partition.schema)}.{quoted(partition.name)} {rest}"
                    )
            await self.run(f"ALTER INDEX {parent} ATTACH PARTITION {part}")

    async def _next_without(self, name: str) -> TablePartition | None:
        """Return the first partition that has no part of the index, or None if each has one."""
        found = await self.in_catalog(
            "SELECT jsonb_build_object('schema', n.nspname, 'name', p.relname)::text "
            "FROM pg_inherits i JOIN pg_class p ON p.oid = i.inhrelid JOIN pg_namespace n ON n.oid = p.relnamespace "
            f"WHERE i.inhparent = to_regclass({literal(self.table.qualified)}) AND NOT EXISTS ("
            "SELECT FROM pg_inherits h JOIN pg_index x ON x.indexrelid = h.inhrelid "
            f"WHERE h.inhparent = to_regclass({literal(self.table.in_schema(name))}) AND x.indrelid = p.oid) "
            "ORDER BY n.nspname, p.relname LIMIT 1"
        )
        return TablePartition(**json.loads(found)) if isinstance(found, str) else None

    def _part(self, partition: TablePartition, name: str) -> str:
        """Return the full name of a partition's part of an index, quoted for SQL."""
        return f"{quoted(partition.schema)}.{quoted(partition.index_name(self.table.name, name))}"

    async def _drop_loose_part(self, partition: TablePartition, name: str) -> None:
        """Drop what an interrupted build has left in a partition: a part of the index that is not attached to it."""
        part = self._part(partition, name)
        loose = f"SELECT NOT relispartition FROM pg_class WHERE oid = to_regclass({literal(part)})"
        if await self.in_catalog(loose) is True:
            await self._drop_concurrently(part)

    async def _drop_concurrently(self, index: str) -> None:
        """Drop an index by its full name, quoted for SQL, after all transactions that may use it; nobody waits for it.

        Raises:
            LockNotAvailable: such a transaction went on for longer than `lock_seconds`. The index is then invalid.
        """
        async with self._waiting(max(round(self.lock_seconds * 1000), LOCK_TIMEOUT_MS)):
            try:
                await self._execute(f"DROP INDEX CONCURRENTLY IF EXISTS {index}")
            except LockNotAvailable:
                raise self._stayed_locked() from None

    async def limit_waiting(self) -> None:
        """Limit how long this session waits for a lock, because other sessions wait behind it."""
        await self._execute(f"SET lock_timeout = {LOCK_TIMEOUT_MS}")

    @asynccontextmanager
    async def _waiting(self, milliseconds: int) -> AsyncIterator[None]:
        """Limit how long statements in the block wait for a lock; 0 is no limit."""
        before = await self.value("SELECT current_setting('lock_timeout')")
        await self._execute(f"SET lock_timeout = {milliseconds}")
        try:
            yield
        finally:
            await self._execute(f"SET lock_timeout = {literal(str(before))}")

    async def _execute(self, statement: str) -> int:
        with translated("changing the schema"):
            status = await self.connection.execute(statement)
        count = status.rpartition(" ")[2]
        return int(count) if count.isdigit() else 0


def _same_definition(index: str, part: str) -> str:
    """Return a query for whether the index `part` is valid and is defined as `index` is, apart from the table."""
    definition = "split_part(pg_get_indexdef(to_regclass({})), ' USING ', 2)"
    return (
        f"SELECT {definition.format(literal(part))} = {definition.format(literal(index))} "
        f"AND (SELECT indisvalid AND indisready FROM pg_index WHERE indexrelid = to_regclass({literal(part)}))"
    )


def in_one_transaction(statements: list[str]) -> str:
    """Return one SQL statement that runs the given statements in one transaction."""
    body = " ".join(f"EXECUTE {literal(statement)};" for statement in statements)
    return f"DO LANGUAGE plpgsql {literal(f'BEGIN {body} END')}"


def literal(text: str) -> str:
    """Return a text as an SQL literal, which means the same whatever `standard_conforming_strings` is."""
    doubled = text.replace("'", "''")
    return "E'" + doubled.replace("\\", "\\\\") + "'" if "\\" in text else f"'{doubled}'"
