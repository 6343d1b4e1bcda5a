"""A session that survives its connection: after a failover it connects anew and repeats what was interrupted.

Whatever runs in it must therefore be repeatable. Each connect reads the connection string anew (passwords rotate),
refuses poolers and replicas, and restores what belongs to a session: the vector codec and the leases. An outage is
waited out with growing pauses up to a limit, and said when it begins, when its reason changes, and when it ends.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from memory_recall.errors import DatabaseUnreachable, LockNotAvailable
from memory_recall.indexing.waiting import OutageListener, outlast
from memory_recall.postgres.connection import Connection, DsnSource, connect, require_session
from memory_recall.postgres.driver_errors import translated
from memory_recall.retrying import Backoff, caused_by
from memory_recall.schema.table import GUARDED, GUARDED_WRITER

T = TypeVar("T")
_RECONNECT = Backoff(first=0.1, longest=3.0)


class Session:
    """One logical session with the primary."""

    def __init__(
        self,
        source: DsnSource,
        *,
        name: str,
        listener: OutageListener,
        prepare: Callable[[Connection], Awaitable[None]] | None = None,
        outage_timeout: float = 1800,
        command_timeout: float = 60,
        lock_timeout_ms: int = 1000,
    ) -> None:
        self._source = source
        self._name = name
        self._listener = listener
        self._prepare = prepare
        self._outage_timeout = outage_timeout
        self._command_timeout = command_timeout
        # The writers' guard compares the model in the statement that uses the column, which holds where every statement
        # sees the present; and having compared it, they may say so to the rules that hold during a swap.
        self._settings = {
            "lock_timeout": str(lock_timeout_ms),
            "default_transaction_isolation": "read committed",
            GUARDED_WRITER: GUARDED,
        }
        self._connection: Connection | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Drop the connection; its leases go with it."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do repeatable work, again after every lost connection.

        Raises:
            DatabaseUnreachable: the outage lasted longer than the limit.
        """
        return await outlast(
            partial(self._attempt, work),
            "database",
            self._listener,
            on=caused_by(DatabaseUnreachable, LockNotAvailable),
            give_up_after=self._outage_timeout,
            backoff=_RECONNECT,
        )

    async def _attempt(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        try:
            return await work(await self._connected())
        except DatabaseUnreachable:
            self.close()
            raise

    async def _connected(self) -> Connection:
        if self._connection is not None and not self._connection.is_closed():
            return self._connection
        connection = await connect(
            self._source,
            application_name=self._name,
            command_timeout=self._command_timeout,
        )
        try:
            await require_session(connection)
            # not at connect: a pooler refuses settings that it does not know, before we can say why
            with translated("preparing the session"):
                for setting, value in self._settings.items():
                    await connection.execute("SELECT set_config($1, $2, false)", setting, value)
            if self._prepare is not None:
                await self._prepare(connection)
        except BaseException:
            connection.terminate()
            raise
        self._connection = connection
        return connection
