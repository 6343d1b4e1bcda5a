"""The embedding service behind the HTTP routes. It turns texts into vectors and reports whether it is ready.

The service is ready after the digest of the model file is verified, the requested layers are on the GPU and every
context is warm. It knows nothing of HTTP. Longer than 300 lines because loading, serving and draining share one state.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import structlog

from memory_embedder.engine.hardware import available_threads
from memory_embedder.engine.protocol import EncodedText, Engine, EngineFacts, Vectors
from memory_embedder.errors import EmbedderError, ErrorKind
from memory_embedder.scheduling.dispatcher import Dispatcher, Ticket
from memory_embedder.scheduling.lanes import Lane, LaneLimits, Lanes
from memory_embedder.scheduling.plan import ComputePlan, LoadPlan, check_offload, plan_load
from memory_embedder.scheduling.query_cache import QueryCache
from memory_embedder.scheduling.tuning import WarmComputers, tune, tune_query_threads
from memory_embedder.settings import EmbedderSettings, Limits
from memory_embedder.telemetry.metrics import Metrics, QueueReading
from memory_embedder.telemetry.tracing import NoTracing, Tracing

_INLINE_TEXTS = 64  # tokenised on the event loop: cheaper than a change of threads
_INLINE_CHARACTERS = 4096  # of these texts together
_TOKENIZED_CHARACTERS = 16_384  # at a time, so that requests take turns on the tokenizer's threads
_WATCH_DELAY_SECONDS = 0.05  # most queries are answered by then, without a task that waits for a disconnect

Disconnected = Callable[[], Awaitable[None]]


class State(StrEnum):
    """Whether requests are served, and if not, why; requests are also served while `TERMINATING`."""

    LOADING = "loading"
    READY = "ready"
    REFUSED = "refused"
    TERMINATING = "terminating"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class ServedModel:
    """The served model as clients see it; `created` is the time of loading, in seconds since the epoch."""

    name: str
    dimensions: int
    max_tokens: int
    pooling: str
    digest: str
    created: int


@dataclass(frozen=True, slots=True)
class Embedded:
    """The result of one request: one unit vector per text, the number of tokens, and the number of truncated texts."""

    vectors: Vectors
    tokens: int
    truncated: int


class EmbeddingService:
    """One served model with its lanes, its query cache and its state."""

    def __init__(
        self,
        settings: EmbedderSettings,
        make_engine: Callable[[LoadPlan], Engine],
        metrics: Metrics,
        tracing: Tracing | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.settings = settings
        self.limits = limits or Limits()
        self.profile = settings.profile()
        self.metrics = metrics
        self.tracing: Tracing = tracing or NoTracing()
        self.model: ServedModel | None = None
        self._make_engine = make_engine
        self._engine: Engine | None = None
        self._dispatcher: Dispatcher | None = None
        self._cache = QueryCache(self.limits.cached_queries)
        self._tokenizers = ThreadPoolExecutor(max_workers=2, thread_name_prefix="tokenizer")
        self._state = State.LOADING
        self._refusal: EmbedderError | None = None
        self._state_lock = threading.Lock()
        self._logger = structlog.get_logger("memory_embedder.scheduling.service")
        metrics.ready.set(0)
        metrics.observe_queues(self.reading)

    @property
    def state(self) -> State:
        """Whether requests are served now, and if not, why."""
        return self._state

    def load(self) -> None:
        """Load and warm up the model, then become ready. The call blocks, so it needs a thread of its own.

        Raises:
            EmbedderError: the model cannot be served from this file, on this machine or with these settings; the
                service does not become ready.
        """
        started = time.monotonic()
        plan = plan_load(self.settings, self.profile, available_threads())
        engine = self._engine = self._make_engine(plan)
        facts = engine.facts
        self._publish(facts)
        self.model = ServedModel(
            self.profile.name, facts.dimensions, facts.max_tokens, facts.pooling.value, facts.digest, int(time.time())
        )
        self.metrics.model_info.labels(model=self.model.name, digest=facts.digest, pooling=self.model.pooling).set(1)
        self._logger.info(
            "Model loaded",
            file=plan.path.name,
            digest=facts.digest,
            device=facts.device,
            kernels=facts.kernels,
            layers_offloaded=facts.layers_offloaded,
            layers_total=facts.layers_total,
            memory_estimate_mib=facts.memory_estimate_bytes >> 20,
            seconds=_since(started),
        )
        check_offload(self.settings, facts)
        compute = tune(engine, plan.candidates, self.limits.tuning_seconds)
        compute = tune_query_threads(engine, compute, self.limits.tuning_seconds)
        self.metrics.batch_limit.set(compute.batch_tokens)
        self._start_lanes(compute, engine)
        self._become(State.READY)
        self._logger.info(
            "Ready",
            batch_tokens=compute.batch_tokens,
            contexts=compute.workers.general,
            query_threads=compute.workers.express_threads,
            seconds=_since(started),
        )

    def refuse(self, error: EmbedderError) -> None:
        """Answer every request with the error `error` from now on. The process goes on running."""
        self._refusal = error
        self._become(State.REFUSED)

    def require_serving(self) -> None:
        """Check that requests are served.

        Raises:
            EmbedderError: `LOADING`, `DRAINING`, or the error that was passed to `refuse`.
        """
        if self._state is not State.TERMINATING:
            self.require_ready()

    def require_ready(self) -> None:
        """Check that requests are served and that no shutdown has begun.

        Raises:
            EmbedderError: `LOADING`, `DRAINING`, or the error that was passed to `refuse`.
        """
        if self._state is State.READY:
            return
        if self._state in {State.TERMINATING, State.DRAINING}:
            raise EmbedderError(
                ErrorKind.DRAINING, "This pod is shutting down; send the request again.", retry_after_seconds=1
            )
        raise self._refusal or loading()

    def require_alive(self) -> None:
        """Check that no batch has stopped making progress.

        Raises:
            EmbedderError: a batch has been computing for more than `Limits.hang_seconds`.
        """
        hung = self._dispatcher.longest_batch_seconds() if self._dispatcher else 0.0
        if hung > self.limits.hang_seconds:
            raise EmbedderError(
                ErrorKind.ENGINE, f"A batch has been computing for {hung:.0f} s; this pod must be restarted."
            )

    async def embed(
        self,
        lane: Lane,
        texts: Sequence[str],
        *,
        truncate: bool,
        client_disconnected: Disconnected,
        caller: bytes | None = None,
    ) -> Embedded:
        """Embed texts with the model's prefix for the lane; the vectors have the order of the texts.

        With `truncate` False, texts longer than the model's window are refused. `client_disconnected` returns when the
        caller has disconnected; texts whose computation has not begun are then dropped. `caller` is the digest of the
        caller's API key; without a key, queries are not cached.

        Raises:
            EmbedderError: the service is not ready, a text is too long, the lane is full, the engine failed, or the
                caller disconnected.
        """
        self.require_serving()
        keys = self._cache_keys(caller, texts) if lane is Lane.QUERY else []
        found = [self._cache.get(key) for key in keys] or [None] * len(texts)
        missing = [index for index, entry in enumerate(found) if entry is None]
        with self.tracing.step("tokenise"):
            encoded = await self._encode(lane, [texts[index] for index in missing])
        cut = [i for i, text in zip(missing, encoded, strict=True) if text.truncated]
        cut += [i for i, entry in enumerate(found) if entry is not None and entry[2]]
        if cut and not truncate:
            raise EmbedderError(
                ErrorKind.TOO_LONG,
                f"Input {min(cut)} is longer than the model's {self.profile.max_tokens} tokens; "
                "shorten it or send truncate=true.",
                param="input",
            )
        vectors = np.empty((len(texts), self.profile.dimensions), dtype=np.float32)
        if missing:
            with self.tracing.step("wait and compute"):
                vectors[missing] = await self._compute(lane, encoded, client_disconnected)
        for index, entry in enumerate(found):
            if entry is not None:
                vectors[index] = entry[0]
        if keys:
            self._remember(keys, missing, encoded, vectors)
        self.metrics.truncated.inc(len(cut))
        tokens = sum(len(text.tokens) for text in encoded) + sum(entry[1] for entry in found if entry is not None)
        self.tracing.describe(
            {
                "lane": lane.value,
                "texts": len(texts),
                "tokens": tokens,
                "truncated": len(cut),
                "cached": len(texts) - len(missing),
            }
        )
        return Embedded(vectors, tokens, len(cut))

    def reading(self) -> QueueReading:
        """Return the present state of the lanes. All its numbers are zero before the model is loaded."""
        if self._dispatcher is None:
            nothing = dict.fromkeys(map(str, Lane), 0)
            return QueueReading(nothing, nothing, 0.0)
        return self._dispatcher.reading()

    def begin_termination(self) -> bool:
        """Report from now on that the service is not ready, but go on serving. Return whether requests are served.

        Callers are then directed to other pods before the first request is refused here.
        """
        serving = self._state is State.READY
        if serving:
            self._become(State.TERMINATING)
        return serving

    def begin_drain(self) -> None:
        """Refuse new requests from now on. Admitted requests are still answered."""
        self._become(State.DRAINING)

    def close(self) -> bool:
        """Answer the admitted requests within a time limit, and return whether all of them were answered.

        The engine is freed only if all of them were answered.
        """
        self.begin_drain()
        finished = self._dispatcher.drain(self.limits.drain_seconds) if self._dispatcher else True
        self._tokenizers.shutdown(wait=True)
        if finished and self._engine is not None:
            self._engine.close()
        self.tracing.close()
        return finished

    def _publish(self, facts: EngineFacts) -> None:
        self.metrics.device_info.labels(device=facts.device, description=facts.description, kernels=facts.kernels).set(
            1
        )
        self.metrics.layers_offloaded.set(facts.layers_offloaded)
        self.metrics.layers.set(facts.layers_total)
        self.metrics.memory_estimate.set(facts.memory_estimate_bytes)

    def _start_lanes(self, plan: ComputePlan, engine: Engine) -> None:
        limits = LaneLimits(
            batch_tokens=plan.batch_tokens,
            batch_sequences=engine.facts.max_sequences,
            queued_tokens={
                Lane.QUERY: self.limits.queued_query_tokens,
                Lane.DOCUMENT: self.limits.queued_document_tokens,
            },
            request_tokens={
                Lane.QUERY: self.limits.query_request_tokens,
                Lane.DOCUMENT: self.limits.queued_document_tokens,
            },
            query_streak=self.limits.query_streak,
        )
        warm = WarmComputers(engine, plan.batch_tokens)
        dispatcher = Dispatcher(Lanes(limits), plan.workers, warm, self.profile.dimensions, self.metrics)
        dispatcher.start(warm.tokens_per_second)
        self._dispatcher = dispatcher

    def _cache_keys(self, caller: bytes | None, texts: Sequence[str]) -> list[bytes]:
        if caller is None or not _few(texts):
            return []
        return [self._cache.key(caller, text) for text in texts]

    async def _encode(self, lane: Lane, texts: list[str]) -> list[EncodedText]:
        engine = self._engine
        if engine is None:
            raise loading()
        prefix = self.profile.query_prefix if lane is Lane.QUERY else self.profile.document_prefix

        def encode(part: list[str]) -> list[EncodedText]:
            return [engine.encode(prefix + text) for text in part]

        if _few(texts):
            return encode(texts)
        loop = asyncio.get_running_loop()
        encoded: list[EncodedText] = []
        for part in _parts(texts):
            encoded += await loop.run_in_executor(self._tokenizers, encode, part)
        return encoded

    async def _compute(self, lane: Lane, encoded: list[EncodedText], client_disconnected: Disconnected) -> Vectors:
        dispatcher = self._dispatcher
        if dispatcher is None:
            raise loading()
        ticket = dispatcher.submit(lane, [text.tokens for text in encoded])
        try:
            return await _result_unless_disconnected(ticket, client_disconnected)
        except BaseException:
            dispatcher.abandon(ticket)
            raise

    def _remember(self, keys: list[bytes], missing: list[int], encoded: list[EncodedText], vectors: Vectors) -> None:
        self.metrics.cache_hits.inc(len(keys) - len(missing))
        self.metrics.cache_misses.inc(len(missing))
        for index, text in zip(missing, encoded, strict=True):
            self._cache.put(keys[index], vectors[index], len(text.tokens), truncated=text.truncated)

    def _become(self, state: State) -> None:
        with self._state_lock:
            if self._state is State.DRAINING:
                return  # a load that finishes during shutdown must not make the service ready
            self._state = state
        self.metrics.ready.set(1 if state is State.READY else 0)


def _few(texts: Sequence[str]) -> bool:
    return len(texts) <= _INLINE_TEXTS and sum(map(len, texts)) <= _INLINE_CHARACTERS


def _parts(texts: list[str]) -> Iterator[list[str]]:
    """Divide the texts of a request into groups; tokenising one group takes milliseconds."""
    part: list[str] = []
    characters = 0
    for text in texts:
        part.append(text)
        characters += len(text)
        if characters >= _TOKENIZED_CHARACTERS:
            yield part
            part, characters = [], 0
    if part:
        yield part


def loading() -> EmbedderError:
    """Return the error that callers get while the model is loading."""
    return EmbedderError(ErrorKind.LOADING, "The model is being loaded; try again shortly.", retry_after_seconds=2)


async def _result_unless_disconnected(ticket: Ticket, client_disconnected: Disconnected) -> Vectors:
    watches: list[asyncio.Task[None]] = []

    async def watch() -> None:
        await client_disconnected()
        if not ticket.future.done():
            ticket.future.set_exception(EmbedderError(ErrorKind.CLIENT_GONE, "The caller closed the connection."))

    timer = ticket.loop.call_later(_WATCH_DELAY_SECONDS, lambda: watches.append(ticket.loop.create_task(watch())))
    try:
        return await ticket.future
    finally:
        timer.cancel()
        for task in watches:
            task.cancel()


def _since(started: float) -> float:
    return round(time.monotonic() - started, 3)
