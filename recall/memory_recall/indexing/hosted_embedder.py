"""Embeds documents beyond the cluster, within rate limits, and sends only texts that may leave the cluster.

Requests are spaced out, so that a backfill runs at the rate limits instead of being refused. A refused request is sent
again after the time that the provider names. If the provider stays unavailable, the error is raised, and the worker
waits until the outage ends.

A batch that is more than the provider takes in one request is divided, and the rows of each part are looked up once
more when its own turn has come.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from memory_recall.embedding.bounded_answer import BeforeSending
from memory_recall.embedding.client import AsyncEmbedder
from memory_recall.embedding.requests import Pacer, estimated_tokens
from memory_recall.embedding.served_model import ServedModel
from memory_recall.embedding.wire import EmbeddedBatch, joined
from memory_recall.errors import EmbedderUnavailable
from memory_recall.indexing.queue_sql import PendingRow
from memory_recall.indexing.sendable_rows import SendableRows
from memory_recall.retrying import Backoff, retry

_ATTEMPTS = 6
_BACKOFF = Backoff(first=0.1, longest=5.0, jitter=1.0)
_LONGEST_PAUSE = 60.0
_IDENTIFIED_SECONDS = 3600.0  # after which the model is identified once more
_IDENTIFYING_REQUESTS = 2  # one with documents and one with a query


@dataclass(frozen=True)
class RateLimits:
    """The limits of requests and tokens a minute for one worker; n workers together send up to n times as many."""

    requests: int
    tokens: int


class HostedEmbedder:
    """Embeds documents through a client of an embedder beyond the cluster.

    Args:
        client: that client.
        limits: the numbers of requests and tokens that may be sent in a minute.
        sendable: sends rows while their texts may be sent.
        longest_pause: the longest wait between two attempts, in seconds, even if the provider names a longer one.
    """

    def __init__(
        self,
        client: AsyncEmbedder,
        limits: RateLimits,
        *,
        sendable: SendableRows,
        longest_pause: float = _LONGEST_PAUSE,
    ) -> None:
        self.model = client.model
        self.hosted = client.hosted
        self._client = client
        self._limits = limits
        self._pacer = Pacer()
        self._longest_pause = longest_pause
        self._sendable = sendable
        self._identified_at: float | None = None

    async def model_info(self) -> ServedModel:
        """Return the served model, which the provider is asked for with a few fixed texts that are of no memory."""
        await self._pacer.admit(_IDENTIFYING_REQUESTS * 60 / self._limits.requests)
        found = await self._client.model_info()
        self._identified_at = time.monotonic()
        return found

    async def embed_queries(self, texts: Sequence[str]) -> EmbeddedBatch:
        """Embed many queries at once; the caller makes sure that none is marked sensitive."""
        return await self._embed_spaced(texts, self._client.embed_queries)

    async def embed_documents(
        self,
        texts: Sequence[str],
        *,
        skip: bool = False,  # noqa: ARG002  (the provider fails a request whole)
        before_sending: BeforeSending | None = None,
    ) -> EmbeddedBatch:
        """Embed texts that are not memories, such as a self-test's; every failure is a `MemoryIndexError`."""
        return await self._embed_spaced(texts, partial(self._client.embed_documents, before_sending=before_sending))

    async def embed_rows(self, rows: list[PendingRow]) -> tuple[list[PendingRow], EmbeddedBatch | None]:
        """Embed the rows whose text may leave the cluster, and return these rows and their vectors.

        Which rows those are is looked up as each request is sent, and at each repetition of a request. If there
        are none, the result is an empty list and None. A model that was identified more than an hour ago is identified
        once more, so that the vectors say which model they are of.

        Raises:
            EmbedderUnavailable: the provider was unavailable at each of several attempts.
        """
        if self._identified_at is not None and time.monotonic() - self._identified_at > _IDENTIFIED_SECONDS:
            await self.model_info()
        left = iter(rows)
        sent: list[PendingRow] = []
        answers: list[EmbeddedBatch] = []
        for texts in self._client.requests([row.text for row in rows]):
            allowed, answer = await retry(
                partial(self._embed_allowed, list(islice(left, len(texts)))),
                on=partial(_retry_delay, longest=self._longest_pause),
                give_up_after=None,
                attempts=_ATTEMPTS,
                backoff=_BACKOFF,
            )
            if answer is not None:
                sent += allowed
                answers.append(answer)
        return sent, joined(answers) if answers else None

    async def _embed_allowed(self, rows: list[PendingRow]) -> tuple[list[PendingRow], EmbeddedBatch | None]:
        """Embed those rows of one request whose text may leave the cluster now."""
        await self._admit(estimated_tokens([row.text for row in rows]))
        return await self._sendable.send(rows, self._client.embed_documents)

    async def _embed_spaced(
        self, texts: Sequence[str], embed: Callable[[Sequence[str]], Awaitable[EmbeddedBatch]]
    ) -> EmbeddedBatch:
        """Embed texts that are not of rows, with as many requests as they need, each within the rate limits."""
        answers = []
        for part in self._client.requests(texts):
            await self._admit(estimated_tokens(part))
            answers.append(await embed(part))
        return joined(answers) if answers else await embed(texts)

    async def _admit(self, tokens: int) -> None:
        """Wait until a request of `tokens` tokens is within both rate limits."""
        await self._pacer.admit(max(60 / self._limits.requests, 60 * tokens / self._limits.tokens))


def _retry_delay(error: BaseException, *, longest: float) -> bool | float:
    """Return the seconds before the next attempt, True for the default delay, or False if no attempt is to follow."""
    if not isinstance(error, EmbedderUnavailable):
        return False
    return min(error.retry_after, longest) if error.retry_after is not None else True
