"""A hosted provider for workers: within its rate limits, patient when it asks for patience, and only what may leave.

Rates are kept by spacing requests out, so that a backfill settles at the ceiling in place of running into refusals. A
refusal is repeated after the time that the provider names; what outlasts the attempts is the worker's to wait out.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from memory_recall.embedding.voyage import VoyageClient, estimated_tokens
from memory_recall.embedding.wire import EmbeddedBatch, ModelInfo
from memory_recall.errors import EmbedderUnavailable
from memory_recall.indexing.queue_sql import PendingRow
from memory_recall.retrying import Backoff, retry

_ATTEMPTS = 6
_BACKOFF = Backoff(first=0.1, longest=5.0, jitter=1.0)
_LONGEST_PAUSE = 60.0


@dataclass(frozen=True)
class RateLimits:
    """What the provider's account allows in a minute."""

    requests: int
    tokens: int


class HostedEmbedder:
    """A document embedder over a hosted provider's client; `screen` names the rows that may leave right now."""

    def __init__(
        self,
        client: VoyageClient,
        limits: RateLimits,
        *,
        screen: Callable[[Sequence[PendingRow]], Awaitable[list[PendingRow]]],
        longest_pause: float = _LONGEST_PAUSE,
    ) -> None:
        self._client = client
        self._limits = limits
        self._free_at = 0.0
        self._longest_pause = longest_pause
        self._screen = screen

    async def model_info(self) -> ModelInfo:
        """What was configured."""
        return await self._client.model_info()

    async def embed_documents(self, texts: Sequence[str]) -> EmbeddedBatch:
        """Embed texts that are nobody's memory, as a self test's; every failure is a `MemoryIndexError`."""
        return await self._client.embed_documents(texts)

    async def embed_rows(self, rows: list[PendingRow]) -> tuple[list[PendingRow], EmbeddedBatch | None]:
        """Embed those rows that may leave; before each attempt it is asked anew which those are.

        Raises:
            EmbedderUnavailable: the provider was not to be had in several attempts.
        """
        return await retry(
            partial(self._embed_allowed, rows),
            on=partial(_pause, longest=self._longest_pause),
            give_up_after=None,
            attempts=_ATTEMPTS,
            backoff=_BACKOFF,
        )

    async def _embed_allowed(self, rows: list[PendingRow]) -> tuple[list[PendingRow], EmbeddedBatch | None]:
        await self._admit(estimated_tokens([row.text for row in rows]))
        allowed = await self._screen(rows)
        return allowed, await self._client.embed_documents([row.text for row in allowed]) if allowed else None

    async def _admit(self, tokens: int) -> None:
        """Wait until a request of that many tokens fits under both ceilings."""
        now = time.monotonic()
        start = max(now, self._free_at)
        self._free_at = start + max(60 / self._limits.requests, 60 * tokens / self._limits.tokens)
        if start > now:
            await asyncio.sleep(start - now)


def _pause(error: BaseException, *, longest: float) -> bool | float:
    """How long to wait before the next attempt; False gives up."""
    if not isinstance(error, EmbedderUnavailable):
        return False
    return min(error.retry_after, longest) if error.retry_after is not None else True
