"""Looks rows up once more just before their texts are sent to an embedder.

A worker sends the texts of rows some time after it has read them: after the requests before, after a connection was
made, and after an outage much later. Meanwhile a row may have become sensitive, may have been deleted, or may have
another text.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from memory_recall.embedding.bounded_answer import BeforeSending
from memory_recall.embedding.wire import EmbeddedBatch
from memory_recall.indexing.queue_sql import PendingRow
from memory_recall.postgres.connection import Connection

RunStatements = Callable[[Callable[[Connection], Awaitable[Any]]], Awaitable[Any]]
LookUp = Callable[[Connection, Sequence[PendingRow]], Awaitable[list[PendingRow]]]

_OLDEST_SECONDS = 0.5  # of an answer by which texts are still sent
_ATTEMPTS = 5


class Embed(Protocol):
    """Embeds texts, and awaits `before_sending` before each request that holds any of them."""

    def __call__(self, texts: Sequence[str], *, before_sending: BeforeSending) -> Awaitable[EmbeddedBatch]:
        """Return the vectors of the texts; what `before_sending` raises is raised."""
        ...


class _RowsChangedError(Exception):
    """Some of the rows that were to be sent may not be sent any more; `left` may."""

    def __init__(self, left: list[PendingRow]) -> None:
        super().__init__()
        self.left = left


class SendableRows:
    """Sends rows to an embedder, and asks the database at the last moment which of them may still be sent.

    Args:
        run: runs statements on a connection, such as that of a session, in which other work takes turns with this.
        look_up: returns those of the rows that are neither sensitive nor deleted, and whose text is unchanged.
    """

    def __init__(self, run: RunStatements, look_up: LookUp) -> None:
        self._run = run
        self._look_up = look_up

    async def send(self, rows: Sequence[PendingRow], embed: Embed) -> tuple[list[PendingRow], EmbeddedBatch | None]:
        """Embed the rows whose text may be sent. Return these rows and their vectors.

        The rows are looked up when the connection to the embedder stands, so that no time is left between that and the
        texts; and again whenever they are sent again. If none may be sent, the result is an empty list and None.
        """
        sent = list(rows)

        async def check() -> None:
            left = await self._still_sendable(sent)
            if len(left) < len(sent):
                raise _RowsChangedError(left)

        while sent:
            try:
                return sent, await embed([row.text for row in sent], before_sending=check)
            except _RowsChangedError as changed:
                sent = changed.left
        return [], None

    async def _still_sendable(self, rows: list[PendingRow]) -> list[PendingRow]:
        """Return the rows that may be sent now.

        An answer that took longer than half a second, for example because the process stood still, is not relied on:
        the rows are looked up again, five times at most.
        """
        left = rows
        for _ in range(_ATTEMPTS):
            began = time.monotonic()
            left = await self._run(self._looking_up(left))
            if not left or time.monotonic() - began < _OLDEST_SECONDS:
                break
        return left

    def _looking_up(self, rows: list[PendingRow]) -> Callable[[Connection], Awaitable[list[PendingRow]]]:
        return lambda connection: self._look_up(connection, rows)
