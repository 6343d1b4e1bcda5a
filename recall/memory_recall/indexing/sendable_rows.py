"""Looks rows up once more just before their texts are sent to an embedder.

A worker sends the texts of rows some time after it has read them: after the requests before, and after an outage much
later. Meanwhile a row may have become sensitive, may have been deleted, or may have another text.
"""

import time
from collections.abc import Awaitable, Callable, Sequence

from memory_recall.indexing.queue_sql import PendingRow
from memory_recall.postgres.connection import Connection
from memory_recall.postgres.session import Session

LookUp = Callable[[Connection, Sequence[PendingRow]], Awaitable[list[PendingRow]]]

_OLDEST_SECONDS = 0.5  # of an answer by which texts are still sent
_ATTEMPTS = 5


class SendableRows:
    """Asks the database which of some rows may still be sent.

    Args:
        session: the session in which rows are looked up; other work in it takes turns with that.
        look_up: returns those of the rows that are neither sensitive nor deleted, and whose text is unchanged.
    """

    def __init__(self, session: Session, look_up: LookUp) -> None:
        self._session = session
        self._look_up = look_up

    async def __call__(self, rows: Sequence[PendingRow]) -> list[PendingRow]:
        """Return the rows whose text may be sent now, in the same order.

        An answer that took longer than half a second, for example because the process stood still, is not relied on:
        the rows are looked up again, five times at most.
        """
        left = list(rows)
        for _ in range(_ATTEMPTS):
            began = time.monotonic()
            left = await self._session.run(self._looking_up(left))
            if not left or time.monotonic() - began < _OLDEST_SECONDS:
                break
        return left

    def _looking_up(self, rows: list[PendingRow]) -> Callable[[Connection], Awaitable[list[PendingRow]]]:
        return lambda connection: self._look_up(connection, rows)
