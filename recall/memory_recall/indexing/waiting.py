"""Waiting: for an embedder that is still loading when a worker starts, and between one piece of work and the next."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from memory_recall.errors import EmbedderUnavailable, MemoryIndexError
from memory_recall.indexing.document_embedder import DescribedEmbedder
from memory_recall.retrying import Backoff, caused_by, retry
from memory_recall.schema.models_sql import ServedModel

T = TypeVar("T")
_LOADING = Backoff(first=0.2, longest=5.0)


class OutageListener(Protocol):
    """Hears when the database or the embedder goes away and when it is back."""

    def outage_began(self, what: str, error: MemoryIndexError) -> None:
        """Report the first failure of an outage, and each failure with another reason."""
        ...

    def outage_ended(self, what: str, seconds: float) -> None:
        """Report the first success after an outage of so many seconds."""
        ...


async def outlast(
    work: Callable[[], Awaitable[T]],
    what: str,
    listener: OutageListener,
    *,
    on: Callable[[BaseException], bool],
    give_up_after: float,
    backoff: Backoff,
) -> T:
    """Repeat `work` until it succeeds, and tell the listener when an outage of `what` begins and ends.

    The listener hears of an outage once for each reason, however many attempts fail.

    Raises:
        MemoryIndexError: the outage lasted longer than `give_up_after` seconds, or `on` does not accept the error.
    """
    began: float | None = None
    reported = ""

    def report(error: BaseException) -> None:
        nonlocal began, reported
        began = time.monotonic() if began is None else began
        if isinstance(error, MemoryIndexError) and error.reason != reported:
            reported = error.reason
            listener.outage_began(what, error)

    result = await retry(work, on=on, give_up_after=give_up_after, backoff=backoff, on_retry=report)
    if began is not None:
        listener.outage_ended(what, time.monotonic() - began)
    return result


async def until_served(embedder: DescribedEmbedder, listener: OutageListener, limit: float) -> ServedModel:
    """Ask the embedder which model it serves, and wait while it is unavailable.

    Raises:
        EmbedderUnavailable: it did not answer within `limit` seconds.
    """
    info = await outlast(
        embedder.model_info,
        "embedder",
        listener,
        on=caused_by(EmbedderUnavailable),
        give_up_after=limit,
        backoff=_LOADING,
    )
    return ServedModel(info.name, info.dimensions, info.digest)


async def sleep_unless(stop: asyncio.Event, seconds: float) -> None:
    """Sleep, but no longer than until `stop` is set."""
    if seconds > 0:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), seconds)
