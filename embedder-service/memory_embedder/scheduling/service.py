"""The embedding service behind the HTTP routes: it turns texts into vectors, and pairs of texts into scores.

It is ready after the digests of the model files are verified, the requested layers are on the GPU and every context is
warm.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
import structlog

from memory_embedder.engine.hardware import FreeCores, available_memory, available_threads
from memory_embedder.engine.protocol import Computer, EncodedText, Engine, EngineFacts, EngineOptions, Vectors
from memory_embedder.engine.vectors import unusable_rows
from memory_embedder.errors import EmbedderError, ErrorKind, draining, loading, no_reranker, too_long, unusable_texts
from memory_embedder.models.profiles import ModelProfile
from memory_embedder.scheduling.dispatcher import Dispatcher
from memory_embedder.scheduling.lanes import Lane, LaneLimits, Lanes, Role
from memory_embedder.scheduling.plan import ComputePlan, check_offload, plan_load, plan_reranker_load
from memory_embedder.scheduling.query_cache import CacheKey, QueryCache, merge
from memory_embedder.scheduling.query_threads import tune_query_threads
from memory_embedder.scheduling.tokenizing import Check, TokenizingThreads, are_few
from memory_embedder.scheduling.tuning import WarmComputers, tune
from memory_embedder.settings import EmbedderSettings, Limits
from memory_embedder.telemetry.metrics import Metrics, QueueReading
from memory_embedder.telemetry.tracing import Tracing

_HANG_FACTOR = 4  # times as long as at start, a batch beside others may take


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
    facts: EngineFacts
    created: int


@dataclass(frozen=True, slots=True)
class Embedded:
    """The result of one request: unit vectors, the number of tokens, and the places of truncated texts.

    There is a vector for each text that is not in `skipped`, which has the places of the texts that the model cannot
    embed, with the reason. The vector of a reranked text has one element, its score.
    """

    vectors: Vectors
    tokens: int
    truncated: frozenset[int]
    skipped: Mapping[int, ErrorKind] = field(default_factory=dict)

    def among(self, others: Mapping[int, ErrorKind]) -> "Embedded":
        """Return the result with the places that its texts have among `others`, texts that were skipped before them."""
        if not others:
            return self
        count = len(self.vectors) + len(self.skipped)
        places = [place for place in range(count + len(others)) if place not in others]
        skipped = {places[at]: kind for at, kind in self.skipped.items()} | dict(others)
        return replace(self, truncated=frozenset(places[at] for at in self.truncated), skipped=skipped)


class EmbeddingService:
    """One served model, perhaps with a reranker beside it, with their lanes, query cache and state."""

    def __init__(
        self,
        settings: EmbedderSettings,
        make_engine: Callable[[EngineOptions], Engine],
        metrics: Metrics,
        tracing: Tracing | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.settings = settings
        self.limits = limits or Limits()
        self.profile = settings.profile()
        self.reranker_profile = settings.reranker_profile()
        self.metrics = metrics
        self.tracing = tracing or Tracing()
        self.model: ServedModel | None = None
        self.reranker: ServedModel | None = None
        self._make_engine = make_engine
        self._engine: Engine | None = None
        self._reranking_engine: Engine | None = None
        self._dispatcher: Dispatcher | None = None
        self._longest_seconds = 0.0  # that a context's largest batch took at start
        self._cache = QueryCache(self.limits.cached_queries)
        self._tokenizers = TokenizingThreads()
        self._free_cores = FreeCores()
        self.state = State.LOADING
        self._loading = False
        self._refusal: EmbedderError | None = None
        self._state_lock = threading.Lock()
        self._logger = structlog.get_logger("memory_embedder.scheduling.service")
        metrics.observe_queues(self.reading)

    def load(self) -> None:
        """Load and warm up the model, then become ready. The call blocks, so it needs a thread of its own.

        Raises:
            EmbedderError: the model cannot be served from this file, on this machine or with these settings; the
                service does not become ready.
        """
        self._loading = True
        try:
            self._load()
        finally:
            self._loading = False

    def _load(self) -> None:
        started = time.monotonic()
        plan = plan_load(self.settings, self.profile, available_threads(), self._memory_of_models())
        engine = self._engine = self._make_engine(plan.options)
        facts = engine.facts
        self._publish(facts)
        self.model = ServedModel(self.profile.name, facts, int(time.time()))
        self.metrics.model_info.labels(model=self.model.name, digest=facts.digest, pooling=facts.pooling).set(1)
        self._log_loaded(plan.options, facts, started)
        check_offload(self.settings, facts)
        compute = tune(engine, plan.fitting(facts), self.limits.tuning_seconds)
        compute = tune_query_threads(engine, compute, self.limits.tuning_seconds, self._free_cores)
        self.metrics.batch_limit.set(compute.batch_tokens)
        self.metrics.query_threads.set(compute.workers.express_threads)
        if self.reranker_profile is not None:
            self._load_reranker(self.reranker_profile, compute, facts)
            compute = replace(compute, workers=replace(compute.workers, rerank=self._reranking_contexts(compute)))
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
        """Check that a request can be served now, which is so until the service begins to drain.

        Raises:
            EmbedderError: `LOADING`, `DRAINING` or the error that was passed to `refuse`.
        """
        if self.state not in {State.READY, State.TERMINATING}:
            self.require_ready()

    def _require_context(self, *, reranks: bool = False) -> None:
        if self._dispatcher is not None and not self._dispatcher.has_context(reranks=reranks):
            model = "reranker" if reranks else "embedding model"
            message = f"Every context of the {model} has failed; send the request again in 1 s."
            raise EmbedderError(ErrorKind.ENGINE, message, retry_after_seconds=1)

    def require_ready(self) -> None:
        """Check that new requests may be sent here: the model can compute and no shutdown has begun.

        Raises:
            EmbedderError: `LOADING`, `DRAINING`, the error that was passed to `refuse`, or `ENGINE` while every context
                of the model that embeds has failed and has no successor yet.
        """
        if self.state is State.READY:
            self._require_context()
            return
        if self.state in {State.TERMINATING, State.DRAINING}:
            raise draining()
        # A copy, since an error holds the frames of all calls that it was ever raised in.
        raise replace(self._refusal) if self._refusal else loading()

    def require_alive(self) -> None:
        """Check that no batch has stopped making progress.

        Raises:
            EmbedderError: a batch has been computing for more than `Limits.hang_seconds`, and for several times as long
                as the largest one took at start.
        """
        hung = self._dispatcher.longest_batch_seconds() if self._dispatcher else 0.0
        if hung > max(self.limits.hang_seconds, _HANG_FACTOR * self._longest_seconds):
            raise EmbedderError(
                ErrorKind.ENGINE, f"A batch has been computing for {hung:.0f} s; this pod must be restarted."
            )

    async def embed(
        self,
        lane: Lane,
        texts: Sequence[str],
        *,
        truncate: bool,
        skip: bool,
        caller: bytes | None = None,
    ) -> Embedded:
        """Embed texts with the model's prefix for the lane; the vectors have the order of the texts.

        With `truncate` False, texts longer than the model's window are refused. With `skip`, a text that is refused or
        has no usable vector is skipped instead of failing the request. `caller` is the digest of the caller's API key;
        without a key, queries are not cached, and all callers have one turn. If the call is cancelled, texts whose
        computation has not begun are dropped.

        Raises:
            EmbedderError: the service is not ready, a text is too long or has no usable vector, the lane is full or the
                engine failed.
        """
        self.require_serving()
        keys = self._cache_keys(caller, texts) if lane is Lane.QUERY else []
        found = [self._cache.get(key) for key in keys] or [None] * len(texts)
        missing = [index for index, entry in enumerate(found) if entry is None]
        with self.tracing.step("tokenise"):
            room = self._room(lane, caller, truncate=truncate)
            encoded = await self._encode(lane, [texts[index] for index in missing], room)
        truncated = [i for i, text in zip(missing, encoded, strict=True) if text.truncated]
        truncated += [i for i, entry in enumerate(found) if entry is not None and entry[2]]
        if truncated and not (truncate or skip):
            raise too_long(f"Input {min(truncated)}", self.profile.max_tokens, "input")
        skipped = {} if truncate else dict.fromkeys(truncated, ErrorKind.TOO_LONG)
        wanted = {index: text for index, text in zip(missing, encoded, strict=True) if index not in skipped}
        vectors = np.empty((0, self.profile.dimensions), dtype=np.float32)
        places = list(wanted)
        if wanted:
            self._require_context()
            with self.tracing.step("wait and compute"):
                vectors = await self._compute(lane, list(wanted.values()), caller)
        unusable = [places[row] for row in unusable_rows(vectors)]
        if unusable and not skip:
            raise unusable_texts("input", unusable)
        if len(wanted) < len(texts):
            vectors = merge(vectors, places, found)
        if keys:
            self._remember(keys, len(missing), wanted, vectors)
        tokens = sum(len(text.tokens) for text in wanted.values())
        tokens += sum(entry[1] for i, entry in enumerate(found) if entry is not None and i not in skipped)
        skipped |= dict.fromkeys(unusable, ErrorKind.UNUSABLE_VECTOR)
        if skipped:
            vectors = np.delete(vectors, list(skipped), axis=0)
        result = Embedded(vectors, tokens, frozenset(truncated) - skipped.keys(), skipped)
        return self._counted(lane, result, cached=len(texts) - len(missing))

    async def rerank(
        self,
        query: str,
        texts: Sequence[str],
        *,
        truncate: bool,
        field: str,
        caller: bytes | None = None,
    ) -> Embedded:
        """Score the pairs of a query and each text with the reranker; the scores have the order of the texts.

        With `truncate` False, pairs longer than the reranker's window are refused. `caller` is that of `embed`, and
        `field` is what the request calls the list of texts. No score is cached. The call may be cancelled as `embed`.

        Raises:
            EmbedderError: the service is not ready or has no reranker, a pair is too long or has no finite score, the
                lane is full or the engine failed.
        """
        self.require_serving()
        engine = self._reranking_engine
        if engine is None:
            raise no_reranker()
        with self.tracing.step("tokenise"):
            room = self._room(Lane.RERANK, caller, truncate=truncate)
            encoded = await self._tokenizers.encode(list(texts), engine.pair_tokenizer(query), room, query=query)
        truncated = [index for index, pair in enumerate(encoded) if pair.truncated]
        if truncated and not truncate:
            raise too_long(f"The query with text {truncated[0]}", engine.facts.max_tokens, "query")
        self._require_context(reranks=True)
        with self.tracing.step("wait and compute"):
            scores = await self._compute(Lane.RERANK, encoded, caller)
        if unusable := unusable_rows(scores):
            raise unusable_texts(field, unusable)
        tokens = sum(len(pair.tokens) for pair in encoded)
        return self._counted(Lane.RERANK, Embedded(scores, tokens, frozenset(truncated)))

    def reading(self) -> QueueReading:
        """Return how many tokens wait and are computed in each lane, and the measured rate; zeros while loading."""
        if self._dispatcher is None:
            nothing = dict.fromkeys(map(str, Lane), 0)
            return QueueReading(nothing, nothing, 0.0)
        return self._dispatcher.reading()

    def begin_termination(self) -> bool:
        """Report from now on that the service is not ready, but go on serving. Return whether requests are served.

        Callers are then directed to other pods before the first request is refused here.
        """
        serving = self.state is State.READY
        if serving:
            self._become(State.TERMINATING)
        return serving

    def begin_drain(self) -> None:
        """Refuse new requests from now on. Admitted requests are still answered."""
        self._become(State.DRAINING)

    def give_up(self) -> None:
        """Answer the admitted requests with `DRAINING` that have not been answered yet."""
        if self._dispatcher:
            self._dispatcher.give_up()

    def close(self) -> bool:
        """Answer the admitted requests within a time limit, and return whether all of them were answered.

        The engines are freed unless a thread still uses them, which would end the process.
        """
        self.begin_drain()
        finished = self._dispatcher.drain(self.limits.drain_seconds) if self._dispatcher else True
        self._tokenizers.close()
        for engine in (self._engine, self._reranking_engine):
            if engine is not None and not self.computing:
                engine.close()
        self.tracing.close()
        return finished

    @property
    def computing(self) -> bool:
        """Whether a thread still loads a model or may compute with one."""
        return self._loading or (self._dispatcher is not None and self._dispatcher.computing)

    def _memory_of_models(self) -> int:
        """Return how many bytes all models may take, which is what large requests leave."""
        return max(0, available_memory() - self.limits.large_bytes)

    def _publish(self, facts: EngineFacts) -> None:
        self.metrics.device_info.labels(device=facts.device, description=facts.description, kernels=facts.kernels).set(
            1
        )
        self.metrics.layers_offloaded.set(facts.layers_offloaded)
        self.metrics.layers.set(facts.layers_total)
        self.metrics.memory_estimate.set(facts.memory_estimate_bytes)

    def _log_loaded(self, options: EngineOptions, facts: EngineFacts, started: float) -> None:
        self._logger.info(
            "Model loaded",
            file=options.path.name,
            digest=facts.digest,
            device=facts.device,
            kernels=facts.kernels,
            layers_offloaded=facts.layers_offloaded,
            layers_total=facts.layers_total,
            memory_estimate_mib=facts.memory_estimate_bytes >> 20,
            seconds=_since(started),
        )

    def _reranking_contexts(self, compute: ComputePlan) -> int:
        engine = self._reranking_engine
        return min(compute.workers.general, engine.facts.most_contexts) if engine else 0

    def _load_reranker(self, profile: ModelProfile, compute: ComputePlan, embedder: EngineFacts) -> None:
        started = time.monotonic()
        options = plan_reranker_load(self.settings, profile, compute, embedder, self._memory_of_models())
        engine = self._reranking_engine = self._make_engine(options)
        self.reranker = ServedModel(profile.name, engine.facts, int(time.time()))
        self.metrics.reranker_info.labels(model=profile.name, digest=engine.facts.digest).set(1)
        self.metrics.memory_estimate.inc(engine.facts.memory_estimate_bytes)
        self._log_loaded(options, engine.facts, started)
        check_offload(self.settings, engine.facts)

    def _start_lanes(self, plan: ComputePlan, engine: Engine) -> None:
        most, window = self.limits, engine.facts.max_tokens
        pair = self._reranking_engine.facts.max_tokens if self._reranking_engine else 0
        # A text as long as the window has room in every lane, since its request cannot be split.
        limits = LaneLimits(
            batch_tokens=plan.batch_tokens,
            batch_sequences=engine.facts.max_sequences,
            queued_tokens={
                Lane.QUERY: max(most.queued_query_tokens, window),
                Lane.DOCUMENT: max(most.queued_document_tokens, window),
                Lane.RERANK: max(most.queued_rerank_tokens, pair),
            },
            request_tokens={
                Lane.QUERY: max(most.query_request_tokens, window),
                Lane.DOCUMENT: max(most.queued_document_tokens, window),
                Lane.RERANK: max(most.rerank_request_tokens, pair),
            },
            query_streak=most.query_streak,
        )
        warm = WarmComputers(engine, plan.batch_tokens)
        reranking = self._reranking_engine and WarmComputers(self._reranking_engine, plan.batch_tokens)

        def make_computer(role: Role, threads: int) -> Computer:
            return reranking(threads) if reranking and role is Role.RERANK else warm(threads)

        dispatcher = Dispatcher(
            Lanes(limits),
            plan.workers,
            make_computer,
            self.profile.dimensions,
            metrics=self.metrics,
            free_cores=self._free_cores,
        )
        dispatcher.start(warm.tokens_per_second)
        self._longest_seconds = max(each.longest_seconds for each in (warm, reranking) if each)
        self._dispatcher = dispatcher

    def _cache_keys(self, caller: bytes | None, texts: Sequence[str]) -> list[CacheKey]:
        if caller is None or not are_few(texts):
            return []
        return [self._cache.key(caller, text) for text in texts]

    def _room(self, lane: Lane, caller: bytes | None, *, truncate: bool) -> Check:
        """Return a function that checks, while a request is tokenised, that the lane has room for what it has so far.

        Without `truncate`, texts beyond the window are not computed, and do not count.
        """
        dispatcher, tokens = self._running(), 0

        def check(latest: list[EncodedText]) -> None:
            nonlocal tokens
            tokens += sum(len(text.tokens) for text in latest if truncate or not text.truncated)
            dispatcher.require_room(lane, tokens, caller)

        return check

    def _running(self) -> Dispatcher:
        if self._dispatcher is None:
            raise loading()
        return self._dispatcher

    async def _encode(self, lane: Lane, texts: list[str], check: Check) -> list[EncodedText]:
        engine = self._engine
        if engine is None:
            raise loading()
        prefix = self.profile.query_prefix if lane is Lane.QUERY else self.profile.document_prefix

        def encode(part: list[str]) -> list[EncodedText]:
            return [engine.encode(prefix + text) for text in part]

        return await self._tokenizers.encode(texts, encode, check, are_queries=lane is Lane.QUERY)

    async def _compute(self, lane: Lane, encoded: list[EncodedText], caller: bytes | None) -> Vectors:
        dispatcher = self._running()
        ticket = dispatcher.submit(lane, [text.tokens for text in encoded], caller)
        try:
            return await ticket.future
        except BaseException:
            dispatcher.abandon(ticket)
            raise

    def _counted(self, lane: Lane, result: Embedded, *, cached: int = 0) -> Embedded:
        self.metrics.truncated.inc(len(result.truncated))
        size: dict[str, int | str] = {"lane": lane.value, "texts": len(result.vectors), "tokens": result.tokens}
        self.tracing.describe(size | {"truncated": len(result.truncated), "cached": cached})
        return result

    def _remember(self, keys: list[CacheKey], misses: int, wanted: Mapping[int, EncodedText], vectors: Vectors) -> None:
        self.metrics.cache_hits.inc(len(keys) - misses)
        self.metrics.cache_misses.inc(misses)
        for index, text in wanted.items():
            if np.isnan(vectors[index, 0]):
                continue  # the model cannot embed it
            self._cache.put(keys[index], vectors[index], len(text.tokens), truncated=text.truncated)

    def _become(self, state: State) -> None:
        with self._state_lock:
            if self.state is State.DRAINING:
                return  # a load that finishes during shutdown must not make the service ready
            self.state = state


def _since(started: float) -> float:
    return round(time.monotonic() - started, 3)
