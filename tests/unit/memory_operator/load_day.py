"""Generates the load of one day: prompts in working hours, an import by HTTP clients, and a table to be filled.

No recorded day of a real store is public, so the day is invented; it is the same in every run.
"""

import random
from dataclasses import dataclass

DAY_SECONDS = 86_400
STEP_SECONDS = 5
QUERY_TOKENS = 14.0
ROW_TOKENS = 60.0
# Queries a second in each hour, from midnight on: nobody asks between one and six.
_QUERIES = (
    0.05,
    0,
    0,
    0,
    0,
    0,
    0.02,
    0.2,
    1.0,
    2.0,
    2.5,
    2.0,
    1.0,
    1.5,
    2.5,
    3.0,
    2.5,
    1.5,
    0.6,
    0.3,
    0.3,
    0.2,
    0.1,
    0.1,
)
_ROWS_A_QUERY = 0.05  # how many memories are stored for each query
_IMPORT = (10.0, 10.4, 9_000.0)  # hours, and tokens a second that HTTP clients send meanwhile
_BULK_AT_HOUR, _BULK_ROWS = 15.0, 60_000
_BURST_SECONDS, _BURST_FACTOR = 20, 60  # a meeting begins: everybody asks at once


@dataclass(frozen=True)
class Arrivals:
    """The queries, the new rows and the tokens of HTTP clients that arrive within one step."""

    queries: int
    rows: int
    import_tokens: float


def arrivals() -> list[Arrivals]:
    """Return the arrivals of each step of the day."""
    dice = random.Random(17)  # noqa: S311  (the same day in every run)
    return [_step(dice, step * STEP_SECONDS) for step in range(DAY_SECONDS // STEP_SECONDS)]


def _step(dice: random.Random, second: int) -> Arrivals:
    hour = second / 3600
    rate = _QUERIES[int(hour)]
    if second % 3600 < _BURST_SECONDS and 9 <= hour < 18:
        rate *= _BURST_FACTOR
    queries = _poisson(dice, rate * STEP_SECONDS)
    rows = _poisson(dice, rate * STEP_SECONDS * _ROWS_A_QUERY)
    if second == _BULK_AT_HOUR * 3600:
        rows += _BULK_ROWS
    begin, end, tokens = _IMPORT
    return Arrivals(queries, rows, tokens * STEP_SECONDS if begin <= hour < end else 0.0)


def _poisson(dice: random.Random, mean: float) -> int:
    """Draw a number from the Poisson distribution with this mean."""
    count, left = 0, dice.expovariate(1.0)
    while left < mean:
        count += 1
        left += dice.expovariate(1.0)
    return count
