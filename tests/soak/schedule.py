"""Which fault happens when: a schedule that follows from a seed, so that a run can be repeated."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

SHORTEST_SECONDS, LONGEST_SECONDS = 5.0, 60.0
_QUIET_START = 0.04  # of the time, before the first fault
_QUIET_END = 0.03  # before the end, in which the last faults end
_TOGETHER = 0.3  # of the faults begin at the same time as the one before


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault: when it begins, in seconds from the start of the run, its kind, and how long it lasts in seconds.

    `dice` is the seed of whatever else is chosen when it happens, such as the pod that it hits.
    """

    at: float
    kind: str
    seconds: float
    dice: int


def schedule(kinds: Sequence[str], *, seconds: float, count: int, seed: int) -> list[Planned]:
    """Plan `count` faults over a run of `seconds`, each kind as often as the others.

    The kinds come in rounds, each in another order. Faults that last do so for 5 to 60 seconds, most for less than 25,
    and no longer than until the end of the run. About a third of the faults begin together with another.
    """
    dice = random.Random(seed)  # noqa: S311 - the same faults in every run are wanted
    order: list[str] = []
    while len(order) < count:
        order += dice.sample(list(kinds), len(kinds))
    first, last = seconds * _QUIET_START, seconds * (1 - _QUIET_END)
    begins = sorted(dice.uniform(first, last) for _ in range(count))
    for place in range(1, count):
        if dice.random() < _TOGETHER:
            begins[place] = begins[place - 1]
    return [
        Planned(at, kind, min(_lasting(dice), seconds - at), dice.getrandbits(32))
        for at, kind in zip(begins, order, strict=False)
    ]


def _lasting(dice: random.Random) -> float:
    return SHORTEST_SECONDS + (LONGEST_SECONDS - SHORTEST_SECONDS) * dice.random() ** 3
