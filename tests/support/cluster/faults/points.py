"""A fault point: one call of the operator to the API server, and one way in which this call fails.

Calls are recorded during one life of a MemoryIndex, from its creation to its deletion. A call is identified by its
method, its path without generated names, the phase in which it is made, and, if the same call is made
several times in the phase, its number. Each of several equal writes has fault points, because the writes differ in
their contents. Of several equal reads only the first has fault points.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Phase(StrEnum):
    """When a call of the operator is made.

    START is the start of the operator, CREATE the time from the creation of the MemoryIndex until it is Ready, and
    DELETE the time from the request to delete it until it is gone.
    """

    START = "start"
    CREATE = "create"
    DELETE = "delete"


class Fault(StrEnum):
    """The way in which a call of the operator to the API server fails.

    With TIME_OUT the answer comes only after the operator has stopped waiting for it. With KILL the API server carries
    out the call, and the operator is killed before it receives the answer. Each other fault is the error status of the
    answer.
    """

    FORBIDDEN = "403"
    CONFLICT = "409"
    GONE = "410"
    TOO_MANY = "429"
    ERROR = "500"
    TIME_OUT = "time-out"
    KILL = "kill"


REASONS = {
    Fault.FORBIDDEN: "Forbidden",
    Fault.CONFLICT: "Conflict",
    Fault.GONE: "Expired",
    Fault.TOO_MANY: "TooManyRequests",
    Fault.ERROR: "InternalError",
}
SHARE = 0.4  # of the fault points: two hundred lives, which take 23 minutes on two cores; all take an hour
_HASH = re.compile(r"-[0-9a-f]{8}(?=[-./]|$)")
_GENERATED = re.compile(r"(?<=/events/)[^/]+")


@dataclass(frozen=True, order=True)
class Call:
    """One call of the operator; `number` counts the calls that have the same `phase` and `what`, from 1."""

    phase: Phase
    what: str
    number: int = 1

    def __str__(self) -> str:
        return f"{self.phase} {self.what}" + (f" #{self.number}" if self.number > 1 else "")


@dataclass(frozen=True)
class Point:
    """A fault point: a call of the operator, and the way in which this call fails.

    If both are None, no call fails, and the calls are only recorded.
    """

    call: Call | None = None
    fault: Fault | None = None

    def __str__(self) -> str:
        return f"{self.fault} at {self.call}" if self.call else "no fault"


def describe(method: str, path: str, *, watch: bool, namespaces: Sequence[str]) -> str:
    """Return a call's method and path, with placeholders for the given namespaces, hashes and generated names."""
    for number, namespace in enumerate(namespaces):
        path = re.sub(rf"(?<=/namespaces/){re.escape(namespace)}(?=/|$)", f"NAMESPACE{number or ''}", path)
    path = _GENERATED.sub("NAME", _HASH.sub("-HASH", path))
    for namespace in namespaces:
        path = path.replace(f"/{namespace}-", "/NAMESPACE-")
    return f"{'WATCH' if watch else method} {path}"


@dataclass
class Recorder:
    """Records the operator's calls while a MemoryIndex is created and deleted, and tells which call must fail."""

    point: Point = Point()
    phase: Phase = Phase.START
    calls: list[Call] = field(default_factory=list)
    hit: bool = False
    _counts: Counter[tuple[Phase, str]] = field(default_factory=Counter)

    def count(self, what: str) -> Fault | None:
        """Record a call of the operator; return the fault with which it must fail, or None if it must not fail."""
        self._counts[self.phase, what] += 1
        call = Call(self.phase, what, self._counts[self.phase, what])
        self.calls.append(call)
        if self.hit or call != self.point.call:
            return None
        self.hit = True
        return self.point.fault


def enumerate_points(lives: Iterable[Iterable[Call]]) -> list[Point]:
    """Return all fault points of the calls that occur in each of the recordings `lives`.

    Each recording holds the calls of one life of a MemoryIndex, from its creation to its deletion.
    """
    stable = set.intersection(*(set(life) for life in lives))
    calls = [call for call in sorted(stable) if call.number == 1 or not call.what.startswith(("GET", "WATCH"))]
    return [Point(call, fault) for call in calls for fault in Fault]


def sampled(points: Sequence[Point], share: float) -> list[Point]:
    """Return the fraction `share` of the fault points, at equal distances and at least one.

    The points of one call are adjacent, one for each of the seven faults. Most distances are no multiple of seven, so
    the result contains all faults.
    """
    count = max(1, round(len(points) * share))
    return [points[number * len(points) // count] for number in range(count)]
