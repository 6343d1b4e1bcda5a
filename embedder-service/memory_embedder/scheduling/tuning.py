"""Warms up contexts before the service is ready, and measures how this machine computes the model fastest.

The fastest batch size and number of contexts depend on caches, cores and the model. Most CPUs, but not all, are fastest
with one thread per context and short batches. Candidates are measured only for a limited time, so fewer of them are
measured for a slow model. The default stays unless another candidate is clearly faster in two measurements, because a
single measurement may be disturbed by another process.
"""

import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import structlog

from memory_embedder.engine.protocol import Computer, Engine, TokenIds
from memory_embedder.engine.vectors import require_usable
from memory_embedder.errors import EmbedderError, configuration_error
from memory_embedder.scheduling.plan import ComputePlan

_TEXT_TOKENS = 128  # documents are about that long, and it divides every batch that is tried
_TRIAL_SECONDS = 0.2  # a few batches
WORTHWHILE_SPEEDUP = 1.1  # at which another candidate takes the place of the default
_SENTENCE = "the quick brown fox jumps over a lazy dog while memories of networks fade "

_logger = structlog.get_logger("memory_embedder.scheduling.tuning")


@dataclass(frozen=True, slots=True)
class Speed:
    """Measured speed of contexts that compute side by side, without HTTP."""

    tokens_per_text: int
    texts_per_batch: int
    contexts: int
    threads: int
    texts_per_second: float
    tokens_per_second: float
    batch_milliseconds_p50: float

    @property
    def undisturbed_rate(self) -> float:
        """Tokens per second, computed from the median duration of a batch.

        The median is hardly affected by a process that takes the cores for a moment.
        """
        return self.contexts * self.texts_per_batch * self.tokens_per_text / (self.batch_milliseconds_p50 / 1000)


def measure_speed(engine: Engine, *, tokens: int, texts: int, contexts: int, threads: int, seconds: float) -> Speed:
    """Measure the speed of `contexts` new contexts that compute batches side by side for `seconds` seconds.

    Each batch has `texts` texts of `tokens` tokens.

    Raises:
        EmbedderError: a context cannot be made or fails, or `tokens` exceeds the model's window.
    """
    batch = synthetic_batch(engine, tokens, texts)
    computers: list[Computer] = []
    try:
        for _ in range(contexts):
            computers.append(engine.computer(threads))
            computers[-1].embed(batch)  # the first batch pays for buffers and page faults
        durations = _run_side_by_side(computers, batch, seconds)
    finally:
        for computer in computers:
            computer.close()
    rate = sum(len(each) / sum(each) for each in durations)
    return Speed(
        tokens_per_text=tokens,
        texts_per_batch=texts,
        contexts=contexts,
        threads=threads,
        texts_per_second=round(rate * texts, 2),
        tokens_per_second=round(rate * texts * tokens, 1),
        batch_milliseconds_p50=round(statistics.median(duration for each in durations for duration in each) * 1000, 2),
    )


def synthetic_batch(engine: Engine, tokens: int, texts: int) -> list[TokenIds]:
    """Make `texts` different sequences of exactly `tokens` tokens from the model's vocabulary.

    Raises:
        EmbedderError: `tokens` exceeds the model's window.
    """
    base = engine.encode(_SENTENCE * tokens).tokens
    if tokens > len(base):
        raise configuration_error(f"The model takes {engine.facts.max_tokens} tokens at most.")
    return [np.append(np.roll(base[1:-1], -shift)[: tokens - 1], base[-1:]) for shift in range(texts)]


def time_batch(computer: Computer, batch: Sequence[TokenIds]) -> float:
    """Compute a batch and return the seconds that this takes."""
    started = time.monotonic()
    computer.embed(batch)
    return time.monotonic() - started


def _run_side_by_side(computers: list[Computer], batch: list[TokenIds], seconds: float) -> list[list[float]]:
    """Compute the batch over and over on all contexts at once, for `seconds` seconds.

    Return for each context the durations of its batches in seconds; each context has at least one.
    """
    barrier = threading.Barrier(len(computers))

    def run(computer: Computer) -> list[float]:
        barrier.wait()
        until, durations = time.monotonic() + seconds, list[float]()
        while not durations or time.monotonic() < until:
            durations.append(time_batch(computer, batch))
        return durations

    with ThreadPoolExecutor(len(computers)) as pool:
        return list(pool.map(run, computers))


class WarmComputers:
    """Makes warm contexts.

    A context is warm after it has computed its largest batch and a usual batch, so that no caller waits for this.
    """

    def __init__(self, engine: Engine, batch_tokens: int) -> None:
        self._engine = engine
        self._typical = _full_batch(engine, batch_tokens)
        self._largest = _full_batch(engine, engine.facts.batch_capacity)
        self._rates: list[float] = []
        self.longest_seconds = 0.0  # that a context's largest batch took when it was made

    def __call__(self, threads: int) -> Computer:
        """Make a warm context that computes with `threads` threads.

        Raises:
            EmbedderError: the context cannot be made or fails, or its vectors are unusable or have other dimensions
                than the model declares.
        """
        computer = self._engine.computer(threads)
        try:
            self._warm_up(computer)
        except BaseException:
            computer.close()  # a context that is tried again and again would fill the memory
            raise
        return computer

    def _warm_up(self, computer: Computer) -> None:
        started = time.monotonic()
        require_usable(computer.embed(self._largest))
        self.longest_seconds = max(self.longest_seconds, time.monotonic() - started)
        started = time.monotonic()
        vectors = require_usable(computer.embed(self._typical))
        self._rates.append(sum(map(len, self._typical)) / max(1e-6, time.monotonic() - started))
        if vectors.shape != (len(self._typical), self._engine.facts.dimensions):
            raise configuration_error("The model yields vectors of another size than it declares.")

    def tokens_per_second(self) -> float:
        """Return the rate of the slowest context, as a first estimate for all contexts together.

        The contexts were measured one at a time, so the sum of their rates would be too high.
        """
        return min(self._rates, default=1000.0)


def tune(engine: Engine, candidates: Sequence[ComputePlan], seconds: float) -> ComputePlan:
    """Measure the candidate plans and return the fastest. The first candidate is the default.

    After `seconds` seconds no further candidate is measured. With 0 seconds, or a single candidate, the default is
    returned without a measurement.

    Raises:
        EmbedderError: the default cannot run. Other candidates that cannot run are left out.
    """
    if len(candidates) < 2 or seconds <= 0:
        return candidates[0]
    deadline = time.monotonic() + seconds
    default = candidates[0]
    _tokens_per_second(engine, default)  # the first run pays for mapping the weights and must not be compared
    rates = _trials(engine, candidates, deadline)
    chosen = choose(rates, default)
    if chosen != default:  # once may be chance: the processor was busy while the default ran
        chosen = choose(_trials(engine, (default, chosen), deadline), default)
    for candidate, rate in rates.items():
        _logger.info("Measured", tokens_per_second=round(rate), chosen=candidate == chosen, **_described(candidate))
    return chosen


def choose(rates: Mapping[ComputePlan, float], default: ComputePlan) -> ComputePlan:
    """Return the fastest plan if it is at least a tenth faster than the default, otherwise the default.

    `rates` are in tokens per second. If the default was not measured, it is returned.
    """
    if default not in rates:
        return default
    fastest = max(rates, key=lambda plan: rates[plan])
    return fastest if rates[fastest] >= WORTHWHILE_SPEEDUP * rates[default] else default


def _trials(engine: Engine, candidates: Sequence[ComputePlan], deadline: float) -> dict[ComputePlan, float]:
    rates: dict[ComputePlan, float] = {}
    for candidate in candidates:
        if time.monotonic() >= deadline:
            break
        try:
            rates[candidate] = _tokens_per_second(engine, candidate)
        except EmbedderError as error:
            _logger.info("A candidate cannot run", reason=error.message, **_described(candidate))
    return rates


def _tokens_per_second(engine: Engine, plan: ComputePlan) -> float:
    tokens = min(_TEXT_TOKENS, engine.facts.max_tokens, plan.batch_tokens)
    speed = measure_speed(
        engine,
        tokens=tokens,
        texts=_texts_of(engine, plan.batch_tokens, tokens),
        contexts=plan.workers.general,
        threads=plan.workers.threads,
        seconds=_TRIAL_SECONDS,
    )
    return speed.undisturbed_rate


def _full_batch(engine: Engine, batch_tokens: int) -> list[TokenIds]:
    tokens = min(engine.facts.max_tokens, batch_tokens)
    return synthetic_batch(engine, tokens, _texts_of(engine, batch_tokens, tokens))


def _texts_of(engine: Engine, batch_tokens: int, tokens: int) -> int:
    return max(1, min(engine.facts.max_sequences, batch_tokens // tokens))


def _described(plan: ComputePlan) -> dict[str, int]:
    return {
        "batch_tokens": plan.batch_tokens,
        "contexts": plan.workers.general,
        "threads_per_context": plan.workers.threads,
    }
