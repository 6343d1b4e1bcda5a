"""How many queries may be under way at an embedder at a time, learned from whether it answers them in time.

If more are asked than an embedder answers, each waits for all before it, until all are late. So the limit is halved
when one is late, and grows by one when as many as it allows have been answered soon: additive increase and
multiplicative decrease (Chiu and Jain, "Analysis of the increase and decrease algorithms for congestion avoidance in
computer networks", 1989). It needs no setting, and several processes that share an embedder find their parts of it.
Between soon and late the limit stays as it is, since whatever is late has been computed for nothing.
"""

from dataclasses import dataclass
from math import inf

_MOST = 64.0  # at first, and at any time: fewer than the connections of a client, so that some are left for probes
_SOON = 0.5  # of the budget, or
_LITTLE_SLOWER = 1.5  # times the soonest answer: how late an answer may be if as many more may be under way


@dataclass(frozen=True, slots=True)
class Begun:
    """What had happened when a query began: how many had been answered, and how often the limit had been halved.

    `others` says whether other queries were under way.
    """

    answered: int
    halved: int
    others: bool


class ConcurrencyLimit:
    """Counts the queries under way at one embedder. Each that began must end, whether anybody still waits for it.

    `budget` is the time in seconds within which an answer is in time.
    """

    def __init__(self, budget: float) -> None:
        self._budget = budget
        self._limit = _MOST
        self._soonest = inf
        self._under_way = 0
        self._answered = 0
        self._halved = 0

    def anew(self) -> "ConcurrencyLimit":
        """Return the same limit with nothing under way, for an embedder that has lost what was."""
        other = ConcurrencyLimit(self._budget)
        other._limit, other._soonest = self._limit, self._soonest
        return other

    def begin(self) -> Begun | None:
        """Count a query as under way, or return None if as many as may be are."""
        if self._under_way >= int(self._limit):
            return None
        self._under_way += 1
        return Begun(self._answered, self._halved, others=self._under_way > 1)

    def end(self) -> None:
        """Count a query as no longer under way, however it ended."""
        self._under_way -= 1

    def answered(self, seconds: float) -> None:
        """Note that a query which has just ended was answered in time, after so many seconds."""
        self._answered += 1
        self._soonest = min(self._soonest, seconds)
        if seconds <= max(self._budget * _SOON, self._soonest * _LITTLE_SLOWER):
            self._limit = min(self._limit + 1 / self._limit, _MOST)

    def late(self, begun: Begun) -> bool:
        """Note that a query was not answered in time; return whether others were answered while it waited.

        If so, the embedder is asked too much. If not, it may be gone.
        """
        self._halve(begun)
        return self._answered > begun.answered

    def refused(self, begun: Begun) -> bool:
        """Note that the embedder's queue was full; return whether other queries of this process are under way."""
        self._halve(begun)
        return self._under_way > 0

    def _halve(self, begun: Begun) -> None:
        # What was asked alone was not too much; and what another query has told before is not told again.
        if begun.others and begun.halved == self._halved:
            self._limit = max(self._limit / 2, 1.0)
            self._halved += 1
