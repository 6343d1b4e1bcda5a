"""Measures with how many threads this machine computes a short query fastest.

A query's matrices are small, so on many cores fewer threads can be faster. Other processes often start at the same time
as the service, and they delay a query on all cores many times more than one on a single core, since all threads wait
for the slowest. Therefore numbers of threads are compared only while the cores are free, and by the fastest tenth of
the queries. While the service runs, the dispatcher leaves the cores to other processes that they use at that moment.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import structlog

from memory_embedder.engine.protocol import Engine
from memory_embedder.scheduling.plan import ComputePlan
from memory_embedder.scheduling.tuning import WORTHWHILE_SPEEDUP, synthetic_batch, time_batch

_QUERY_TOKENS = 16
_TRIAL_SECONDS = 0.2  # a few dozen queries
_SETTLING_SECONDS = 0.002  # longer than the threads of a context spin after its last operation
_TURN_QUERIES = 4  # that are counted before another number of threads has its turn

_logger = structlog.get_logger("memory_embedder.scheduling.query_threads")


def tune_query_threads(
    engine: Engine, plan: ComputePlan, seconds: float, free_cores: Callable[[int], int]
) -> ComputePlan:
    """Return the plan with the number of express threads that computes a short query fastest.

    With 0 seconds nothing is measured, and the plan is returned unchanged. So it is if `free_cores`, a `FreeCores` of
    `memory_embedder.engine.hardware`, never counted a free core for each thread.
    """
    most = plan.workers.express_threads
    if most < 2 or seconds <= 0:
        return plan
    milliseconds = _query_milliseconds(engine, _halvings(most), free_cores)
    chosen = choose_query_threads(milliseconds, most)
    if chosen != most:  # once may be chance here, too
        chosen = choose_query_threads(_query_milliseconds(engine, [most, chosen], free_cores), most)
    _logger.info("Measured", query_milliseconds=milliseconds, chosen=chosen)
    return replace(plan, workers=replace(plan.workers, express_threads=chosen))


def choose_query_threads(milliseconds: Mapping[int, float], most: int) -> int:
    """Return the fastest number of threads if it is at least a tenth faster than `most`; otherwise `most`.

    `milliseconds` holds the undisturbed time of one query for each number of threads. If it lacks `most`, which could
    not be measured, `most` is returned.
    """
    if most not in milliseconds:
        return most
    fastest = min(milliseconds, key=lambda threads: milliseconds[threads])
    return fastest if milliseconds[most] >= WORTHWHILE_SPEEDUP * milliseconds[fastest] else most


def _halvings(number: int) -> list[int]:
    return [number, *_halvings(number // 2)] if number > 1 else [1]


def _query_milliseconds(engine: Engine, numbers: Sequence[int], free_cores: Callable[[int], int]) -> dict[int, float]:
    """Return for numbers of threads the milliseconds of a short query on one context, while nothing disturbs it.

    The numbers take turns. A turn is counted if there is a free core for each thread before and after it; a number
    without such a turn is left out. The first query of a turn is not counted, since it starts or ends threads.
    """
    batch = synthetic_batch(engine, min(_QUERY_TOKENS, engine.facts.max_tokens), 1)
    durations: dict[int, list[float]] = {}
    computer = engine.computer(max(numbers))
    try:
        until = time.monotonic() + _TRIAL_SECONDS * len(numbers)
        free = _settled(free_cores)
        while True:
            for number in numbers:
                computer.use_threads(number)
                computer.embed(batch)
                turn = [time_batch(computer, batch) for _ in range(_TURN_QUERIES)]
                before, free = free, _settled(free_cores)
                if min(before, free) >= number:
                    durations.setdefault(number, []).extend(turn)
            if time.monotonic() >= until:
                break
    finally:
        computer.close()
    return {number: round(float(np.quantile(values, 0.1)) * 1000, 2) for number, values in durations.items()}


def _settled(free_cores: Callable[[int], int]) -> int:
    """Return the number of free cores once the threads of the last query have stopped waiting for further work."""
    time.sleep(_SETTLING_SECONDS)
    return free_cores(1)
