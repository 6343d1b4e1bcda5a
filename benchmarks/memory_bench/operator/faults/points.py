"""What a fault point is: one call of a life, and one way in which it fails.

A call is known by its method and its path without what differs between lives, by the phase of the life, and by how
often the same call has been made in that phase. Writes are told apart by that number, since each has another content;
of repeated reads the first counts.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Phase(StrEnum):
    """The phases of a life: the operator's own start, from the object's creation to Ready, and its deletion."""

    START = "start"
    CREATE = "create"
    DELETE = "delete"


class Fault(StrEnum):
    """The ways in which a call fails: an answer of the API server, none within the client's time, or no client."""

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
_HASH = re.compile(r"-[0-9a-f]{8}(?=[-./]|$)")
_GENERATED = re.compile(r"(?<=/events/)[^/]+")


@dataclass(frozen=True, order=True)
class Call:
    """One call of a life; `number` counts equal ones of its phase from 1."""

    phase: Phase
    what: str
    number: int = 1

    def __str__(self) -> str:
        return f"{self.phase} {self.what}" + (f" #{self.number}" if self.number > 1 else "")


@dataclass(frozen=True)
class Point:
    """A call that fails, and how; with neither, nothing fails and the calls are only recorded."""

    call: Call | None = None
    fault: Fault | None = None

    def __str__(self) -> str:
        return f"{self.fault} at {self.call}" if self.call else "no fault"


def describe(method: str, path: str, *, watch: bool, namespaces: Sequence[str]) -> str:
    """Return a call's method and path without the namespaces of a life and the hashes in names."""
    for number, namespace in enumerate(namespaces):
        path = re.sub(rf"(?<=/namespaces/){re.escape(namespace)}(?=/|$)", f"NAMESPACE{number or ''}", path)
    path = _GENERATED.sub("NAME", _HASH.sub("-HASH", path))
    for namespace in namespaces:
        path = path.replace(f"/{namespace}-", "/NAMESPACE-")
    return f"{'WATCH' if watch else method} {path}"


@dataclass
class Recorder:
    """Numbers the calls of one life, and tells when the call of its fault point is made."""

    point: Point = Point()
    phase: Phase = Phase.START
    calls: list[Call] = field(default_factory=list)
    hit: bool = False
    _counts: Counter[tuple[Phase, str]] = field(default_factory=Counter)

    def count(self, what: str) -> Fault | None:
        """Record a call; return the fault with which it must fail, or None."""
        self._counts[self.phase, what] += 1
        call = Call(self.phase, what, self._counts[self.phase, what])
        self.calls.append(call)
        if self.hit or call != self.point.call:
            return None
        self.hit = True
        return self.point.fault


def enumerate_points(lives: Iterable[Iterable[Call]]) -> list[Point]:
    """Return all fault points of the calls that were made in every one of the recorded lives."""
    stable = set.intersection(*(set(life) for life in lives))
    calls = [call for call in sorted(stable) if call.number == 1 or not call.what.startswith(("GET", "WATCH"))]
    return [Point(call, fault) for call in calls for fault in Fault]


def sampled(points: Sequence[Point], share: float) -> list[Point]:
    """Return a share of the points, spread over all calls and, since seven is prime to most steps, over all faults."""
    count = max(1, round(len(points) * share))
    return [points[number * len(points) // count] for number in range(count)]
