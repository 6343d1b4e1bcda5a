"""A database session that outlives its connection.

After a failover the session connects again and repeats the interrupted work, so all work that runs in it must be
repeatable. Each connect reads the connection string anew (passwords rotate), refuses poolers and replicas, and restores
the state of the session: its settings, and whatever `prepare` does, such as codecs, leases and LISTEN.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from memory_recall.errors import DatabaseRejected, DatabaseUnreachable, LockNotAvailable
from memory_recall.postgres.connection import Connection, DsnSource, connect
from memory_recall.postgres.connection_uri import parse
from memory_recall.postgres.pooled_hosts import refuse_pooled_hosts
from memory_recall.postgres.session_sql import apply_settings, require_session
from memory_recall.retrying import Awaited, Backoff, OutageListener, retry_outage

T = TypeVar("T")
_RECONNECT = Backoff(first=0.1, longest=3.0)
_LIMITS = ("statement_timeout", "lock_timeout", "idle_session_timeout", "idle_in_transaction_session_timeout")
_SETTINGS = {
    "lock_timeout": "1000",  # milliseconds
    "default_transaction_isolation": "read committed",
    # Postgres ends a session, and with it the session's leases, a minute after its client's node has died. By default
    # that takes two hours, or a quarter of an hour if the client has yet to acknowledge data, such as a notification.
    # `connect` sets the same in the other direction.
    "tcp_keepalives_idle": "30",  # seconds
    "tcp_keepalives_interval": "10",  # seconds
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "60000",  # milliseconds
}
# Postgres ends a statement whose client is gone, and with it the leases of the session, after this time. By default a
# swap's index build would go on to its end, for hours, and keep the next process of the swap away. A build outside of a
# swap, which opens its session otherwise, goes on, since the next process takes the index over.
_OF_ABANDONED = {"client_connection_check_interval": "10s"}


@asynccontextmanager
async def opened_session(source: DsnSource, name: str) -> AsyncIterator[Connection]:
    """Open one connection that is a session of the primary's, and drop it when the block ends.

    It has no limits of time.

    Raises:
        PoolerRefused: a connection pooler is in use.
        DatabaseUnreachable: the server is a replica.
        DatabaseUnreachable, InvalidConfiguration, DatabaseIdentityMismatch: as for `connect`.
    """
    refuse_pooled_hosts(parse(source.read()).servers)
    connection = await connect(source, application_name=name)
    try:
        await require_session(connection)
        await apply_settings(connection, _without_limits(connection))
        yield connection
    finally:
        connection.terminate()


class Session:
    """One logical session with the primary; a context manager that closes the connection.

    Args:
        source: where the connection string is read at each connect.
        name: the session's `application_name`.
        listener: called when the database becomes unavailable and when it is available again.
        prepare: awaited with each new connection, before any work.
        settings: run-time parameters of Postgres that are set on each new connection.
        outage_timeout: seconds after which an outage ends `run` with an error.
        command_timeout: seconds after which a single statement counts as a lost connection.
    """

    def __init__(
        self,
        source: DsnSource,
        *,
        name: str,
        listener: OutageListener,
        prepare: Callable[[Connection], Awaitable[None]] | None = None,
        settings: Mapping[str, str] | None = None,
        outage_timeout: float = 1800,
        command_timeout: float = 60,
    ) -> None:
        self._source = source
        self._name = name
        self._listener = listener
        self._prepare = prepare
        self._outage_timeout = outage_timeout
        self._command_timeout = command_timeout
        self._settings = {**_SETTINGS, **(settings or {})}
        self._connection: Connection | None = None
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, which also ends the session's leases."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def run(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run `work` with a connection, again after a lost connection or a lock timeout, and return its result.

        Several tasks take turns.

        Raises:
            DatabaseUnreachable, LockNotAvailable: the outage lasted longer than `outage_timeout`, or `work` raised a
                `LockNotAvailable` with `waited`.
        """
        return await retry_outage(
            partial(self._attempt, work),
            Awaited.DATABASE,
            self._listener,
            on=_is_outage,
            give_up_after=self._outage_timeout,
            backoff=_RECONNECT,
        )

    async def _attempt(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        async with self._turn:
            try:
                return await work(await self._connected())
            except DatabaseUnreachable:
                self.close()
                raise

    async def _connected(self) -> Connection:
        if self._connection is not None and not self._connection.is_closed():
            return self._connection
        refuse_pooled_hosts(parse(self._source.read()).servers)
        connection = await connect(self._source, application_name=self._name, command_timeout=self._command_timeout)
        try:
            await require_session(connection)
            # not at connect: a pooler refuses settings that it does not know, before we can say why
            await apply_settings(connection, _without_limits(connection) | self._settings)
            with suppress(DatabaseRejected):  # a server on Windows cannot look for its client
                await apply_settings(connection, _OF_ABANDONED)
            if self._prepare is not None:
                await self._prepare(connection)
        except BaseException:
            connection.terminate()
            raise
        self._connection = connection
        return connection


def _without_limits(connection: Connection) -> dict[str, str]:
    """Return settings without limits of time, which a role may have for the statements of an application.

    They would end an index build or a session that waits, and it would be repeated as after an outage.
    """
    is_new = connection.get_server_version().major >= 17
    return dict.fromkeys((*_LIMITS, "transaction_timeout") if is_new else _LIMITS, "0")


def _is_outage(error: BaseException) -> bool:
    """Return whether to try again after this error."""
    return isinstance(error, DatabaseUnreachable) or (isinstance(error, LockNotAvailable) and not error.waited)
