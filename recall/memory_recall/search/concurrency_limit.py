"""How many queries may be under way at an embedder at a time, learned from whether it answers them in time.

If more are asked than an embedder answers, each waits for all before it, until all are late. So the limit is halved
when one is late, and grows by one when as many as it allows have been answered soon: additive increase and
multiplicative decrease (Chiu and Jain, "Analysis of the increase and decrease algorithms for congestion avoidance in
computer networks", 1989). It needs no setting, and several processes that share an embedder find their parts of it.
Between soon and late the limit stays as it is, since whatever is late has been computed for nothing.
"""

from dataclasses import dataclass

_MOST = 100.0  # at first, and at any time; an HTTP client opens fewer connections
_SOON = 0.5  # of the budget: an answer after it says that no more should be under way
_IN_USE = 0.5  # the share of the limit that is under way where answers say that it may be higher


@dataclass(frozen=True, slots=True)
class Begun:
    """What had happened when a query began: how many had been answered, and how often the limit had been halved."""

    answered: int
    halved: int


class ConcurrencyLimit:
    """Counts the queries under way. Each that began must end, and then be said to be answered or late.

    `budget` is the time in seconds that each of them has.
    """

    def __init__(self, budget: float) -> None:
        self._budget = budget
        self._limit = _MOST
        self._under_way = 0
        self._answered = 0
        self._halved = 0

    def begin(self) -> Begun | None:
        """Count a query as under way, or return None if as many as may be are."""
        if self._under_way >= int(self._limit):
            return None
        self._under_way += 1
        return Begun(self._answered, self._halved)

    def end(self) -> None:
        """Count a query as no longer under way, however it ended."""
        self._under_way -= 1

    def answered(self, seconds: float) -> None:
        """Note that a query which has just ended was answered after so many seconds."""
        self._answered += 1
        if seconds <= self._budget * _SOON and self._under_way + 1 >= self._limit * _IN_USE:
            self._limit = min(self._limit + 1 / self._limit, _MOST)

    def late(self, begun: Begun) -> bool:
        """Note that a query was not answered in time; return whether another was answered while it waited.

        The limit is halved once for all queries that were under way together.
        """
        if begun.halved == self._halved:
            self._limit = max(self._limit / 2, 1.0)
            self._halved += 1
        return self._answered > begun.answered
