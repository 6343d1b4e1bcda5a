"""Looks rows up once more just before their texts are sent to an embedder.

A worker sends the texts of rows some time after it has read them: after the requests before, after a connection was
made, and after an outage much later. Meanwhile a row may have become sensitive, may have been deleted, or may have
another text.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from memory_recall.embedding.bounded_answer import BeforeSending
from memory_recall.embedding.wire import EmbeddedBatch
from memory_recall.errors import DatabaseUnreachable
from memory_recall.indexing.queue_sql import PendingRow
from memory_recall.postgres.connection import Connection

RunStatements = Callable[[Callable[[Connection], Awaitable[Any]]], Awaitable[Any]]
LookUp = Callable[[Connection, Sequence[PendingRow]], Awaitable[list[PendingRow]]]

_OLDEST_SECONDS = 0.5  # of an answer by which texts are still sent
_CONFIRM_SECONDS = 2.0  # for which a connection to the embedder may be idle while the database is asked
_ATTEMPTS = 5  # in which a fresh answer is insisted on, lest a slow database keeps texts from being sent at all
_MOST_UNANSWERED = 30  # attempts in a row, of two seconds at least, after which it is an error that nothing is sent


class Embed(Protocol):
    """Embeds texts, and awaits `before_sending` before each request that holds any of them."""

    def __call__(self, texts: Sequence[str], *, before_sending: BeforeSending) -> Awaitable[EmbeddedBatch]:
        """Return the vectors of the texts; what `before_sending` raises is raised."""
        ...


class _NotConfirmedError(Exception):
    """The database did not confirm, or not soon enough, that all rows may still be sent."""


class _UnansweredError(_NotConfirmedError):
    """The database did not answer while the connection to the embedder could wait."""


class SendableRows:
    """Sends rows to an embedder, and asks the database at the last moment which of them may still be sent.

    Args:
        run: runs statements on a connection, such as that of a session, in which other work takes turns with this. It
            waits until an outage of the database is over.
        look_up: returns those of the rows that are neither sensitive nor deleted, and whose text is unchanged.
    """

    def __init__(self, run: RunStatements, look_up: LookUp) -> None:
        self._run = run
        self._look_up = look_up

    async def send(self, rows: Sequence[PendingRow], embed: Embed) -> tuple[list[PendingRow], EmbeddedBatch | None]:
        """Embed the rows whose text may be sent. Return these rows and their vectors.

        The rows are looked up once the connection to the embedder is established, so that no time passes between that
        and the sending; and again whenever they are sent again. An answer that took longer than half a second, for
        example because the process stood still, is not relied on. If the database does not answer within two seconds,
        the request is given up, and the outage is waited for without a connection to the embedder: the embedder would
        end it, which would count as a failure of these rows. If none of the rows may be sent, the result is an empty
        list and None.

        Raises:
            DatabaseUnreachable: the database took longer than two seconds to answer, in 30 attempts in a row.
            MemoryIndexError: as of `run` and `embed`.
        """
        left = list(rows)
        attempts = unanswered = 0
        while left:
            attempts += 1
            oldest = _OLDEST_SECONDS if attempts <= _ATTEMPTS else math.inf
            try:
                return left, await embed([row.text for row in left], before_sending=self._confirming(left, oldest))
            except _NotConfirmedError as error:
                unanswered = unanswered + 1 if isinstance(error, _UnansweredError) else 0
                if unanswered == _MOST_UNANSWERED:
                    raise _too_slow() from None
                left, _ = await self._run(self._looking_up(left))
        return [], None

    def _confirming(self, rows: list[PendingRow], oldest: float) -> BeforeSending:
        """Return a function that raises an error unless all rows may be sent, by an answer of at most `oldest` s."""

        async def confirm() -> None:
            try:
                async with asyncio.timeout(_CONFIRM_SECONDS):
                    left, age = await self._run(self._looking_up(rows))
            except TimeoutError:
                raise _UnansweredError from None
            if len(left) < len(rows) or age > oldest:
                raise _NotConfirmedError

        return confirm

    def _looking_up(self, rows: list[PendingRow]) -> Callable[[Connection], Awaitable[tuple[list[PendingRow], float]]]:
        """Return work that returns the rows that may be sent, and the seconds since the database was asked."""

        async def look_up(connection: Connection) -> tuple[list[PendingRow], float]:
            began = time.monotonic()
            return await self._look_up(connection, rows), time.monotonic() - began

        return look_up


def _too_slow() -> DatabaseUnreachable:
    return DatabaseUnreachable(
        f"The database took longer than {_CONFIRM_SECONDS:.0f} s to say which rows may still be sent to the embedder, "
        f"{_MOST_UNANSWERED} times in a row, so no text was sent.",
        "Look in pg_stat_activity for what its statements wait for, such as locks on the table or a full disk.",
    )
