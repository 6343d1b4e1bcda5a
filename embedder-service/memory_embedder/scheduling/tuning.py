"""Chooses batch size, contexts and a query's threads by measuring a few on this machine, between loading and readiness.

What is fastest depends on caches, cores and the model: most CPUs do best with a thread a context and short batches, but
not all. The measurement takes a second or two; a slow model gets through fewer candidates, not through more time. The
default stays unless another is clearly faster, so that a disturbed measurement costs nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import structlog

from memory_embedder.engine.protocol import Engine
from memory_embedder.errors import EmbedderError
from memory_embedder.scheduling.offline import Speed, measure_speed
from memory_embedder.scheduling.plan import ComputePlan

_TEXT_TOKENS = 128  # documents are about that long, and it divides every batch that is tried
_QUERY_TOKENS = 16
_TRIAL_SECONDS = 0.2  # a few batches, or a few dozen queries
_CLEARLY = 1.1


def tune(engine: Engine, candidates: Sequence[ComputePlan], seconds: float) -> ComputePlan:
    """The plan to serve with; the first candidate is the default, `seconds` bounds the time in which trials begin."""
    if len(candidates) < 2 or seconds <= 0:
        return candidates[0]
    logger = structlog.get_logger("memory_embedder.scheduling.tuning")
    deadline = time.monotonic() + seconds
    default = candidates[0]
    _tokens_per_second(engine, default)  # the first to run pays for mapping the weights, and must not be judged by it
    rates = _trials(engine, candidates, deadline)
    chosen = choose(rates, default)
    if chosen != default:  # once may be chance: the processor was busy while the default ran
        chosen = choose(_trials(engine, (default, chosen), deadline), default)
    for candidate, rate in rates.items():
        logger.info("Measured", tokens_per_second=round(rate), chosen=candidate == chosen, **_described(candidate))
    return chosen


def tune_query_threads(engine: Engine, plan: ComputePlan, seconds: float) -> ComputePlan:
    """The plan with as many threads for queries as compute a short one fastest; `seconds` = 0 leaves it as it is."""
    most = plan.workers.express_threads
    if most < 2 or seconds <= 0:
        return plan
    milliseconds = {threads: _query_milliseconds(engine, threads) for threads in _halvings(most)}
    chosen = choose_query_threads(milliseconds)
    if chosen != most:  # once may be chance here too
        chosen = choose_query_threads({threads: _query_milliseconds(engine, threads) for threads in (most, chosen)})
    structlog.get_logger("memory_embedder.scheduling.tuning").info(
        "Measured", query_milliseconds=milliseconds, chosen=chosen
    )
    return replace(plan, workers=replace(plan.workers, express_threads=chosen))


def _trials(engine: Engine, candidates: Sequence[ComputePlan], deadline: float) -> dict[ComputePlan, float]:
    rates: dict[ComputePlan, float] = {}
    for candidate in candidates:
        if time.monotonic() >= deadline:
            break
        try:
            rates[candidate] = _tokens_per_second(engine, candidate)
        except EmbedderError as error:
            structlog.get_logger("memory_embedder.scheduling.tuning").info(
                "A candidate cannot run", reason=error.message, **_described(candidate)
            )
    return rates


def choose(rates: dict[ComputePlan, float], default: ComputePlan) -> ComputePlan:
    """The default, unless it was measured and the fastest beats it by a tenth."""
    if default not in rates:
        return default
    fastest = max(rates, key=lambda plan: rates[plan])
    return fastest if rates[fastest] >= _CLEARLY * rates[default] else default


def choose_query_threads(milliseconds: Mapping[int, float]) -> int:
    """Of the threads that were tried, the most, unless fewer take a query a tenth less time."""
    most = max(milliseconds)
    fastest = min(milliseconds, key=lambda threads: milliseconds[threads])
    return fastest if milliseconds[most] >= _CLEARLY * milliseconds[fastest] else most


def _halvings(number: int) -> list[int]:
    return [number, *_halvings(number // 2)] if number > 1 else [1]


def _query_milliseconds(engine: Engine, threads: int) -> float:
    tokens = min(_QUERY_TOKENS, engine.facts.max_tokens)
    speed = measure_speed(engine, tokens=tokens, texts=1, contexts=1, threads=threads, seconds=_TRIAL_SECONDS)
    return speed.batch_milliseconds_p50


def _tokens_per_second(engine: Engine, plan: ComputePlan) -> float:
    tokens = min(_TEXT_TOKENS, engine.facts.max_tokens, plan.batch_tokens)
    texts = max(1, min(plan.batch_tokens // tokens, engine.facts.max_sequences))
    speed = measure_speed(
        engine,
        tokens=tokens,
        texts=texts,
        contexts=plan.workers.general,
        threads=plan.workers.threads,
        seconds=_TRIAL_SECONDS,
    )
    return undisturbed_rate(speed)


def undisturbed_rate(speed: Speed) -> float:
    """Tokens a second by the median batch: another process that takes the cores for a moment does not count."""
    return speed.contexts * speed.texts_per_batch * speed.tokens_per_text / (speed.batch_milliseconds_p50 / 1000)


def _described(plan: ComputePlan) -> dict[str, int]:
    return {
        "batch_tokens": plan.batch_tokens,
        "contexts": plan.workers.general,
        "threads_per_context": plan.workers.threads,
    }
