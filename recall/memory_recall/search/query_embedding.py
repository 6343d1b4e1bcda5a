"""The query's vector within a budget, or the reason why there is none; it never raises.

A recall sits on the path of every prompt, so an embedder that is slow or gone may cost one budget once. After the first
failure the circuit is open: recalls are told so at once, while a background task asks the embedder again and again,
each time a little later, until it answers within the budget. No recall is spent on finding out.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from memory_recall.embedding.following import ActiveSeen, FollowingEmbedder
from memory_recall.errors import EmbedderRejected, ModelMismatch
from memory_recall.search.query import Degraded

DEFAULT_BUDGET = 0.150
_PROBE_DELAYS = (0.5, 1.0, 2.0)  # the last repeats: recovery is seen within two seconds and a half
_PROBE_TEXT = "ping"
_FAILURES = frozenset({Degraded.EMBEDDER_FAILED, Degraded.EMBEDDER_TIMEOUT, Degraded.CIRCUIT_OPEN})
_CURABLE = _FAILURES | {Degraded.MODEL_MISMATCH, Degraded.DIMENSION_MISMATCH}


class QueryEmbedder(Protocol):
    """Anything that embeds queries. A `model` attribute, where it has one, is compared with the table's vectors."""

    async def embed_query(self, text: str, /) -> Iterable[float]:
        """The vector of one query."""
        ...


@dataclass(frozen=True, slots=True)
class Embedded:
    """A query's vector."""

    vector: list[float]
    model: str | None


class QuerySemantics:
    """Embeds queries for recalls behind a budget and a circuit breaker."""

    def __init__(
        self,
        embedder: QueryEmbedder | None,
        *,
        budget: float = DEFAULT_BUDGET,
        probe_delays: Sequence[float] = _PROBE_DELAYS,
    ) -> None:
        self._embedder = embedder
        self._budget = budget
        self._probe_delays = probe_delays
        self._probe: asyncio.Task[None] | None = None

    @property
    def hosted(self) -> bool:
        """Whether a query would leave the cluster to be embedded."""
        return bool(getattr(self._embedder, "hosted", False))

    @property
    def circuit_open(self) -> bool:
        """Whether the embedder failed and has not recovered yet."""
        return self._probe is not None and not self._probe.done()

    async def embed(self, text: str) -> Embedded | Degraded:
        """The vector of the text, or why there is none."""
        if self._embedder is None:
            return Degraded.NO_EMBEDDER
        if self.circuit_open:
            return Degraded.CIRCUIT_OPEN
        outcome = await self._attempt(self._embedder, text)
        failed = isinstance(outcome, Degraded) and outcome in _FAILURES
        if failed and not self.circuit_open:
            self._probe = asyncio.create_task(self._recover(self._embedder))
        return outcome

    @property
    def asked(self) -> QueryEmbedder | None:
        """Who is asked at the moment."""
        return self._embedder.current if isinstance(self._embedder, FollowingEmbedder) else self._embedder

    def follow(self, active: ActiveSeen, asked: QueryEmbedder | None, reason: Degraded) -> bool:
        """Turn to where the active model is served, if that may cure what kept meaning out; whether it may."""
        if not isinstance(self._embedder, FollowingEmbedder) or reason not in _CURABLE:
            return False
        moved = self._embedder.follow(active, asked, failed=reason in _FAILURES)
        if moved and self._probe is not None:
            self._probe.cancel()  # it asks the one that we have left
            self._probe = None
        return moved

    async def close(self) -> None:
        """End the background task."""
        if self._probe is not None:
            self._probe.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._probe

    async def _attempt(self, embedder: QueryEmbedder, text: str) -> Embedded | Degraded:
        # The one that is asked, held fast: another recall may follow to the next model while this one waits.
        asked: QueryEmbedder = embedder.current if isinstance(embedder, FollowingEmbedder) else embedder
        try:
            async with asyncio.timeout(self._budget):
                vector = await asked.embed_query(text)
            return Embedded([float(number) for number in vector], getattr(asked, "model", None))
        except ModelMismatch:
            return Degraded.MODEL_MISMATCH  # it serves another model by now
        except EmbedderRejected:
            return Degraded.EMBEDDER_REFUSED  # the fault lies with this query; the next one may pass
        except TimeoutError:
            return Degraded.EMBEDDER_TIMEOUT
        except Exception:  # noqa: BLE001  (a recall never fails because an embedder of any make did)
            return Degraded.EMBEDDER_FAILED

    async def _recover(self, embedder: QueryEmbedder) -> None:
        delays = iter(self._probe_delays)
        delay = next(delays)
        while True:
            await asyncio.sleep(delay)
            if isinstance(await self._attempt(embedder, _PROBE_TEXT), Embedded):
                return
            delay = next(delays, delay)
