"""Compares MemoryIndex objects with expectations, within the time in which an expectation must be met."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.support.cluster.api import INDEXES, Api, Object
from tests.support.cluster.conditions import condition
from tests.support.cluster.situations.situation import Expected, Situation
from tests.support.gitops.health import ARGO_CD, WAITS_FROM_CHOICE, argo_cd, flux
from tests.support.gitops.kstatus import Kstatus, compute

_POLL_SECONDS = 2.0
_SOON_SECONDS = 100.0  # less than the 120 after which what others deliver counts as missing
_LATE_SECONDS = (125.0, 240.0)  # from when and until when a late expectation must be met


@dataclass
class Observation:
    """An expectation about an object, whether it has been met and, until it is met, the object's last difference.

    `impossible` says that the situation could not be made.
    """

    situation: Situation
    expected: Expected
    met: bool = False
    seen: str = ""
    impossible: bool = False
    began: float = field(default_factory=time.monotonic)

    def look(self, item: Object) -> None:
        """Compare the object with the expectation, and keep the result in `met` and `seen`."""
        difference = differing(item, self.expected)
        self.met = self.met or not difference
        self.seen = difference or self.seen

    def note_failure(self, error: str) -> None:
        """Give the observation up if making the situation failed with this error; do nothing if the text is empty."""
        if error:
            self.seen, self.impossible = error, True

    @property
    def due(self) -> bool:
        """Whether to look now: the expectation is not met yet, and it may be met at this time."""
        age = time.monotonic() - self.began
        return not self.met and (_LATE_SECONDS[0] <= age if self.expected.late else age <= _SOON_SECONDS)

    @property
    def open(self) -> bool:
        """Whether the expectation is still unmet and the time in which it may be met has not ended."""
        age = time.monotonic() - self.began
        return (
            not self.met and not self.impossible and age <= (_LATE_SECONDS[1] if self.expected.late else _SOON_SECONDS)
        )


def differing(item: Object, expected: Expected) -> str:
    """Return how an object differs from the expectation, or an empty text if it does not differ.

    Compared are the condition Ready and the results of kstatus, Argo CD and Flux.
    """
    ready = condition(item, "Ready")
    reason, status = ready.get("reason", ""), ready.get("status", "none")
    found = {
        "Ready": (status, expected.ready if expected.ready != "any" else status),
        "reason": (reason, reason if reason in expected.reasons or not expected.reasons else expected.reasons),
        "kstatus": (compute(item), expected.kstatus),
        "Argo CD": (argo_cd(item)["status"], "Suspended" if reason in WAITS_FROM_CHOICE else ARGO_CD[expected.kstatus]),
    }
    if expected.kstatus is not Kstatus.TERMINATING:
        found["Flux"] = (flux(item), Kstatus.CURRENT if reason == "ScaledToZero" else expected.kstatus)
    message = ready.get("message", "")
    parts = [f"{name} is {seen}, not {wanted}" for name, (seen, wanted) in found.items() if seen != wanted]
    if status == "True" and not expected.serves and expected.ready != "any":
        parts.append("Ready although it does not serve")
    return f"{'; '.join(parts)} ({message[:200]})" if parts else ""


async def observe(api: Api, observed: Sequence[Observation], made: asyncio.Event, say: Callable[[str], None]) -> None:
    """Compare each MemoryIndex at every change with what its situation expects; some situations last only a second.

    This ends once `made` is set, after which `observed` no longer grows, and each expectation has been met or its time
    is over.
    """
    latest: dict[tuple[str, str], Object] = {}
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(_follow(api, observed, latest))
        while not made.is_set() or any(one.open for one in observed):
            for key, item in latest.items():
                _compare(observed, key, item)
            met, left = sum(one.met for one in observed), sum(one.open for one in observed)
            say(f"{met} of {len(observed)} situations are as expected, {left} open")
            await asyncio.sleep(_POLL_SECONDS)
        following.cancel()


async def _follow(api: Api, observed: Sequence[Observation], latest: dict[tuple[str, str], Object]) -> None:
    """Compare each MemoryIndex at every change, and keep it in `latest`, until this is cancelled."""
    while True:  # the API server ends a watch after some time, and a new one begins with all objects
        async for kind, item in api.watch(f"{INDEXES}/memoryindexes"):
            key = (item["metadata"]["namespace"], item["metadata"]["name"])
            if kind == "DELETED":
                latest.pop(key, None)
            else:
                latest[key] = item
                _compare(observed, key, item)


def _compare(observed: Sequence[Observation], key: tuple[str, str], item: Object) -> None:
    """Compare a MemoryIndex with the expectations that are due for it."""
    for one in observed:
        if (f"sit-{one.situation.key}", one.situation.observed) == key and one.due and "status" in item:
            one.look(item)
