"""What all recalls have in common: their two forms of an answer and their time budget.

A recall may wrap another one, and then changes what it asks or what it has found. The budget is kept by the recall that
a caller asks, so that one budget covers it and all that it wraps. It covers the wait for a connection of the pool,
too. A recall that exceeds the budget fails at once. The work of the recall is cancelled and cleaned up in the
background, since Postgres may no longer answer.

A server that does not answer may have been replaced by another one, and may answer again before it has learned of that.
Its memories are then those of before. Therefore the idle connections of the pool, which still lead to it, are replaced
once a recall has got no answer from it, or an error by which it says that it stops or starts. A server that has
answered in another way, be it that it has no connection to spare or has ended a statement, is there: then no connection
is given up, since it may not be possible to open another one. The same holds if a recall has only waited for a
connection. Where recalls are rare none may be asked meanwhile, so after some seconds without any an idle connection is
tried, again and again.
"""

import asyncio
import math
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from typing import Any, TypeVar

from memory_recall.background import BackgroundTasks
from memory_recall.errors import (
    AuthenticationFailed,
    DatabaseUnreachable,
    InvalidInput,
    MemoryIndexError,
    ReplicaRefused,
    ServerNotVerified,
)
from memory_recall.postgres.connection import AnyConnection, Pool, borrowed
from memory_recall.postgres.session_sql import try_connection
from memory_recall.search.options import RecallOptions
from memory_recall.search.query import FurtherWords, RecallQuery, require_query
from memory_recall.search.result import RecallResult
from memory_recall.search.token_budget import only, places_that_fit

Rows = list[dict[str, Any]]
T = TypeVar("T")

_RENEWAL_SECONDS = 5.0  # between two renewals of a pool, lest a server that is only slow has to take connections, too
_QUIET_SECONDS = 5.0  # without a recall, after which an idle connection is tried; a failover takes longer
_TRIAL_SECONDS = 2.0
CLEANUP_SECONDS = 1.0  # how long a cancelled statement may take to end before its connection is cut
_SHUTDOWN_SQLSTATES = frozenset({"57P01", "57P02", "57P03"})  # of a server that stops, or does not serve yet
_REFUSALS = (ReplicaRefused, ServerNotVerified, AuthenticationFailed)  # of a server that is there

_held: ContextVar[list[object]] = ContextVar("an object for each connection that a recall has at the moment")


@dataclass(frozen=True, slots=True)
class Request:
    """A query, whether its memories are also wanted as rows of the caller's table, and when its answer is due.

    `due` is a time of the monotonic clock. `further` waits for words that the lexical leg is to search beside the
    query's own. It is called once the query has been embedded, and again if the recall has to be repeated.
    """

    query: RecallQuery
    own_columns: bool
    due: float
    further: Callable[[], Awaitable[FurtherWords | None]] | None = None

    @property
    def seconds_left(self) -> float:
        """The seconds until the answer is due, or less than zero if it is late."""
        return self.due - time.monotonic()


@dataclass(frozen=True, slots=True)
class Recalled:
    """The result of a recall, and its memories as rows of the caller's table if these were wanted."""

    result: RecallResult
    rows: Sequence[dict[str, Any]] = ()


class Recall(ABC):
    """Recalls memories. It is safe for concurrent use and must be closed at the end.

    `reserved` are the seconds of the time budget that a recall gives to others than the database.
    """

    def __init__(self, options: RecallOptions, reserved: float) -> None:
        self.options = options
        self.reserved = reserved
        self._tasks = BackgroundTasks()
        self._renewed = self._answered = -math.inf
        self._watching: asyncio.Task[None] | None = None

    @property
    @abstractmethod
    def pools(self) -> tuple[Pool, ...]:
        """The pools whose connections a recall takes."""

    async def close(self) -> None:
        """End the work in the background. What the recall was given stays open, since it belongs to the caller."""
        await self._tasks.close()

    async def recall(self, query: RecallQuery) -> RecallResult:
        """Recall memories, best first, within the time budget.

        Raises:
            DatabaseUnreachable: the database cannot be searched, or did not answer within the time budget.
            ReplicaRefused: a replica answered, which may not know yet that a memory has become sensitive; a subclass of
                `DatabaseUnreachable`.
            InvalidInput: `query` is no `RecallQuery`, or the table lacks the column of a filter or the column
                `user_id`.
        """
        return (await self._within_budget(query, own_columns=False)).result

    async def recall_rows(self, query: RecallQuery) -> Rows:
        """Recall memories as rows of the caller's table, best first, for an API that ranks further by itself.

        A row maps the names of the table's columns, as the table has them, to their values, except vectors and search
        vectors. It also has the score of the fusion (`rank`), the fields of `Evidence` and, where they are known,
        `superseded_by` and `relevance`, which replace columns of the same names. In the row of a sensitive memory the
        text is masked if it is one column, and the values of all columns but the key, category, tags, owner, numbers,
        booleans, UUIDs and times are None. A column of type json or jsonb is None, too, even if a category or an owner
        is inside it. `max_tokens` counts the content alone. Errors are those of `recall`.
        """
        return list((await self._within_budget(query, own_columns=True)).rows)

    @abstractmethod
    async def answer(self, request: Request) -> Recalled:
        """Answer a query. Only a recall that wraps this one calls it, and keeps the time budget."""

    @asynccontextmanager
    async def _borrowed(self, pool: Pool) -> AsyncIterator[AnyConnection]:
        """Take a connection from a pool for a block; it is closed if the block lasts longer than the time budget."""
        held, mark = _held.get([]), object()
        try:
            async with borrowed(pool, self.options.time_budget + CLEANUP_SECONDS) as connection:
                held.append(mark)
                yield connection
        finally:  # giving it back may wait for the server, too
            if mark in held:
                held.remove(mark)

    async def _within_budget(self, query: RecallQuery, *, own_columns: bool) -> Recalled:
        budget = self.options.time_budget
        request = Request(require_query(query), own_columns, due=time.monotonic() + budget)
        self._keep_watching()
        answer = await self._within(budget, self.answer(request))
        if answer is None:
            raise DatabaseUnreachable(
                f"The recall was not answered within its {budget:g} seconds.",
                "Check that the database answers and that the pool has connections to spare, or raise `time_budget`.",
            )
        self._answered = time.monotonic()
        recalled = _fitted(answer, query.max_tokens)
        if self.options.observe is not None:
            self.options.observe(recalled.result)
        return recalled

    async def _within(self, seconds: float, work: Coroutine[Any, Any, T]) -> T | None:
        """Await a part of a recall for at most `seconds`; return its result, or None after cancelling it.

        If the server may have been replaced, the pools connect anew.
        """
        held: list[object] = []
        context = copy_context()
        context.run(_held.set, held)
        task = context.run(self._tasks.start, work)
        try:
            await asyncio.wait({task}, timeout=seconds)
        finally:
            waits_for_server = bool(held)
            task.cancel()  # does nothing to a task that has ended
        if not task.done():
            if waits_for_server:
                await self._renew_connections()
            return None
        try:
            return task.result()
        except DatabaseUnreachable as error:
            if _may_be_gone(error):
                await self._renew_connections()
            raise

    async def _renew_connections(self) -> None:
        """Have each connection of the pools replaced when it is taken next."""
        now = time.monotonic()
        if now - self._renewed < _RENEWAL_SECONDS:
            return
        self._renewed = now
        for pool in self.pools:
            await pool.expire_connections()

    def _keep_watching(self) -> None:
        """Start the task that tries idle connections, and tell the event loop's handler why it ended, if it did."""
        ended = self._watching
        if ended is not None and not ended.done():
            return
        if ended is not None and not ended.cancelled() and (error := ended.exception()) is not None:
            context = {"message": "Idle connections of a recall were not tried any more.", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
        self._watching = self._tasks.start(self._watch_connections())

    async def _watch_connections(self) -> None:
        """While no recall is answered, have the connections replaced if an idle one leads to a silent server."""
        while True:
            await asyncio.sleep(_QUIET_SECONDS)
            if time.monotonic() - self._answered < _QUIET_SECONDS:
                continue
            for pool in self.pools:
                if pool.get_idle_size() and not await self._answers(pool):
                    await self._renew_connections()

    async def _answers(self, pool: Pool) -> bool:
        try:
            async with asyncio.timeout(_TRIAL_SECONDS), borrowed(pool, _TRIAL_SECONDS) as connection:
                await try_connection(connection)
        except TimeoutError:
            return False
        except MemoryIndexError as error:
            return not _may_be_gone(error)
        return True


def _may_be_gone(error: MemoryIndexError) -> bool:
    """Return whether the server may have been replaced: it did not answer, or said that it stops or starts."""
    if not isinstance(error, DatabaseUnreachable) or isinstance(error, _REFUSALS):
        return False
    return not error.sqlstate or error.sqlstate in _SHUTDOWN_SQLSTATES


def _fitted(recalled: Recalled, max_tokens: int | None) -> Recalled:
    """Leave out the memories that do not fit, after whatever wraps the recall has put them in their order."""
    if max_tokens is None:
        return recalled
    places = places_that_fit(recalled.result.memories, max_tokens)
    rows = [recalled.rows[place] for place in places] if recalled.rows else ()
    return Recalled(only(recalled.result, places), rows)


class WrappingRecall(Recall):
    """A recall that wraps another one and has its options. Closing it closes that one, too.

    `reserved` are the seconds of the time budget that both together give to others than the database.

    Raises:
        InvalidInput: these seconds are not below the time budget.
    """

    def __init__(self, inner: Recall, reserved: float) -> None:
        budget = inner.options.time_budget
        if reserved >= budget:
            raise InvalidInput(
                f"The {reserved:g} s of embedding and second stage do not fit into the recall's {budget:g} s.",
                "Give a `time_budget` larger than the `embedding_budget` and the second stage's `budget` together.",
            )
        super().__init__(inner.options, reserved)
        self._inner = inner

    @property
    def pools(self) -> tuple[Pool, ...]:
        """Those of the wrapped recall."""
        return self._inner.pools

    async def close(self) -> None:
        """End the work in the background, that of the wrapped recall, too."""
        await super().close()
        await self._inner.close()
