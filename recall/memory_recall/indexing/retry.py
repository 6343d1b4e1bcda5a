"""Embeds a batch in spite of failures: waits for an unavailable embedder, and finds the rows that make a batch fail.

Failures are of three kinds. A busy embedder names the time after which to try again. An unavailable or crashing
embedder is probed with a test text until it answers. If the same batch fails repeatedly although the embedder recovers
each time, the batch is halved, because one of its texts may crash the embedder; a row that is left alone in this way is
reported as failed. A refusal or a malformed answer halves
the batch at once. Texts that the embedder itself names as those that its model cannot embed cost their rows alone. If
every row of a batch would fail, they are reported as failed only if the embedder can embed the test text, because a
broken embedder must never quarantine a whole table.

No row is reported as failed because of a lost or refused API key. A worker that runs permanently waits for the right
key, which is read anew for each request. A worker that ends after its work raises the error, so that whoever started it
learns of it.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from memory_recall.embedding.served_model import ServedModel
from memory_recall.embedding.wire import EmbeddedBatch
from memory_recall.errors import (
    EmbedderBroken,
    EmbedderBusy,
    EmbedderRejected,
    EmbedderUnauthorized,
    EmbedderUnavailable,
    EmptyText,
    MemoryIndexError,
)
from memory_recall.indexing.document_embedder import DocumentEmbedder, RowEmbedder
from memory_recall.indexing.queue_sql import PendingRow
from memory_recall.indexing.sendable_rows import SendableRows
from memory_recall.retrying import DEFAULT_BACKOFF, Awaited, Backoff, OutageListener, caused_by, retry_outage
from memory_recall.schema.models_sql import RecordedModel

_SELF_TEST_TEXT = "memory index self test"
_CRASHES_BEFORE_SPLIT = 3
_BUSY_REPORTED_SECONDS = 60.0  # an embedder that several share is busy for seconds at any time
_START_BACKOFF = Backoff(first=0.2, longest=5.0)
_RECOVERY_BACKOFF = Backoff(first=0.2, longest=10.0, jitter=0.2)


@dataclass
class Outcome:
    """The result of one batch: rows with the answer for them, failed rows with the class of their error, and counts."""

    embedded: list[tuple[list[PendingRow], EmbeddedBatch]] = field(default_factory=list)
    failed: list[tuple[PendingRow, str]] = field(default_factory=list)
    tokens: int = 0
    truncated: int = 0
    withheld: int = 0  # rows that were not sent, because they changed after they had been read
    failed_batches: int = 0

    def without_texts(self) -> "Outcome":
        """Return the same result without the texts of its rows, which are not needed to store it."""
        return replace(
            self,
            embedded=[([row.without_text() for row in rows], answer) for rows, answer in self.embedded],
            failed=[(row.without_text(), error) for row, error in self.failed],
        )


class RetryingEmbedder:
    """Embeds batches with an embedder that may be busy, unavailable or broken, or that a text may crash.

    Args:
        embedder: the embedder that computes the vectors.
        listener: is told when the embedder becomes unavailable and when it is available again.
        sendable: sends rows while their texts may be sent; an embedder beyond the cluster asks by itself.
        model: the model of the column that is filled. Each answer must come from its file, and before each self-test
            the embedder must serve it. None accepts any model.
        outage_timeout: the seconds after which an outage is no longer waited for and its error is raised.
        awaits_key: whether a lost or refused API key is waited for like an outage.
    """

    def __init__(
        self,
        embedder: DocumentEmbedder,
        listener: OutageListener,
        *,
        sendable: SendableRows,
        model: RecordedModel | None = None,
        outage_timeout: float = 1800,
        awaits_key: bool = False,
    ) -> None:
        self._embedder = embedder
        self._listener = listener
        self._sendable = sendable
        self._model = model
        self._outage_timeout = outage_timeout
        self._key_errors = (EmbedderUnauthorized,) if awaits_key else ()
        self._recovering = asyncio.Lock()
        self._healthy_at = 0.0

    async def embed(self, rows: Sequence[PendingRow]) -> Outcome:
        """Embed the rows. Rows that cannot be embedded are reported as failed in the outcome.

        Raises:
            EmbedderUnavailable: the embedder was unavailable for longer than the limit.
            EmbedderUnauthorized: the API key was lost or refused, and waiting for it is not wanted or took too long.
            ModelMismatch, DimensionMismatch: errors that waiting does not cure.
        """
        outcome = Outcome()
        outcome.failed.extend((row, EmptyText.reason) for row in rows if not row.text.strip())
        sent = [row for row in rows if row.text.strip()]
        if sent:
            await self._embed(sent, outcome)
        return outcome

    async def _embed(self, rows: list[PendingRow], outcome: Outcome) -> None:
        while True:
            sent, answer = await self._answer(rows)
            outcome.withheld += len(rows) - len(sent)
            rows = sent
            if answer is None:
                return
            if not isinstance(answer, MemoryIndexError) and len(answer.skipped) < len(rows):
                embedded = [row for place, row in enumerate(rows) if place not in answer.skipped]
                truncated = answer.truncated.union(place for place, row in enumerate(embedded) if row.is_cut)
                outcome.embedded.append((embedded, replace(answer, truncated=truncated)))
                outcome.failed += _failures(rows, answer.skipped)
                outcome.tokens += answer.tokens
                outcome.truncated += len(truncated)
                return
            outcome.failed_batches += 1
            if isinstance(answer, MemoryIndexError) and len(rows) > 1:
                middle = len(rows) // 2
                await self._embed(rows[:middle], outcome)
                await self._embed(rows[middle:], outcome)
                return
            unavailable = isinstance(answer, EmbedderUnavailable)  # each time it was sent, with a recovery in between
            if unavailable:
                await self._await_recovery(failed_at=time.monotonic())
            if unavailable or await self._is_healthy():
                reasons = {0: type(answer)} if isinstance(answer, MemoryIndexError) else answer.skipped
                outcome.failed += _failures(rows, reasons)
                return
            await self._await_recovery(failed_at=time.monotonic())

    async def _answer(self, rows: list[PendingRow]) -> tuple[list[PendingRow], EmbeddedBatch | MemoryIndexError | None]:
        """Send the rows. Return the rows that were sent, and their vectors or the error that they seem to cause.

        If none of the rows may be sent any more, the result is an empty list and None.
        """
        crashes = 0
        while True:
            sent_at = time.monotonic()
            try:
                return await retry_outage(
                    partial(self._send, rows),
                    Awaited.EMBEDDER,
                    self._listener,
                    on=_busy_seconds,
                    give_up_after=self._outage_timeout,
                    backoff=DEFAULT_BACKOFF,
                    reported_after=_BUSY_REPORTED_SECONDS,
                    reminded_after=_BUSY_REPORTED_SECONDS,
                )
            except (EmbedderRejected, EmbedderBroken) as error:
                return rows, error
            except EmbedderBusy:
                raise  # it was waited for long enough; as an `EmbedderUnavailable` it would count as a crash below
            except self._key_errors:
                await self._await_recovery(failed_at=sent_at)
            except EmbedderUnavailable as error:
                crashes += 1
                if crashes >= _CRASHES_BEFORE_SPLIT:
                    return rows, error
                await self._await_recovery(failed_at=sent_at)

    async def _send(self, rows: list[PendingRow]) -> tuple[list[PendingRow], EmbeddedBatch | None]:
        if isinstance(self._embedder, RowEmbedder):
            rows, batch = await self._embedder.embed_rows(rows)
        else:
            rows, batch = await self._sendable.send(rows, partial(self._embedder.embed_documents, skip=True))
        if self._model is not None and batch is not None:  # a roll-out may have replaced the file between two requests
            self._model.require_file(batch.digest)
        return rows, batch

    async def _is_healthy(self) -> bool:
        try:
            await self._require_healthy()
        except (EmbedderUnavailable, EmbedderBroken, EmbedderRejected, *self._key_errors):
            return False
        return True

    async def _require_healthy(self) -> None:
        """Check the embedder's model and embed the test text. A busy embedder counts as healthy.

        Raises:
            MemoryIndexError: the check or the embedding failed.
        """
        try:
            if self._model is not None:
                self._model.require_same(await self._embedder.model_info())
            await self._embedder.embed_documents([_SELF_TEST_TEXT])
        except EmbedderBusy:
            return
        self._healthy_at = time.monotonic()

    async def _await_recovery(self, *, failed_at: float) -> None:
        """Wait until the embedder embeds the test text.

        Only one task probes the embedder at a time. Other tasks wait until that task has found the embedder healthy.
        """
        async with self._recovering:
            if self._healthy_at > failed_at:
                return
            await retry_outage(
                self._require_healthy,
                Awaited.EMBEDDER,
                self._listener,
                on=caused_by(EmbedderUnavailable, EmbedderBroken, EmbedderRejected, *self._key_errors),
                give_up_after=self._outage_timeout,
                backoff=_RECOVERY_BACKOFF,
            )


async def wait_until_served(
    embedder: DocumentEmbedder, listener: OutageListener, outage_timeout: float, *, awaits_key: bool = False
) -> ServedModel:
    """Wait until the embedder answers, which may take until its model is loaded. Return the model that it serves.

    With `awaits_key` True, a lost or refused API key is waited for, too.

    Raises:
        EmbedderUnavailable: the embedder did not answer within `outage_timeout` seconds.
        EmbedderUnauthorized: the API key was lost or refused.
    """
    return await retry_outage(
        embedder.model_info,
        Awaited.EMBEDDER,
        listener,
        on=caused_by(EmbedderUnavailable, *((EmbedderUnauthorized,) if awaits_key else ())),
        give_up_after=outage_timeout,
        backoff=_START_BACKOFF,
    )


def _failures(
    rows: Sequence[PendingRow], reasons: Mapping[int, type[MemoryIndexError]]
) -> list[tuple[PendingRow, str]]:
    """Return the rows at the places of `reasons`, each with the name of its error."""
    return [(rows[place], reason.__name__) for place, reason in sorted(reasons.items())]


def _busy_seconds(error: BaseException) -> bool | float:
    """Return the seconds to wait for a busy embedder, True if the embedder names none, or False for any other error."""
    return (error.retry_after or True) if isinstance(error, EmbedderBusy) else False
