"""Define the conditions of a MemoryIndex, and the verdicts from which they are rendered.

The transition time of a condition changes with its status. It also changes when the condition begins to wait for
something that a person or another controller may still deliver, because the grace period begins then. An unchanged
condition is rendered as it was written. Therefore a settled object yields an identical list of conditions, and nothing
is written.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from memory_operator.api.reasons import DELIVERED_BY_OTHERS, Reason

MESSAGE_LIMIT = 1024  # enough for a scheduler's message; the API allows 32768
GRACE_PERIOD = timedelta(seconds=120)  # for what others deliver, before the object stalls


class ConditionStatus(StrEnum):
    """The three values of a condition's status."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class ConditionType(StrEnum):
    """The condition types: three summaries, one for each stage of the work in its order, then the optional ones."""

    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    DATABASE_REACHABLE = "DatabaseReachable"
    EXTENSION_READY = "ExtensionReady"
    SCHEMA_READY = "SchemaReady"
    EMBEDDER_READY = "EmbedderReady"
    BACKFILLED = "Backfilled"
    INDEX_READY = "IndexReady"
    MODEL_ACTIVE = "ModelActive"
    GRAPH_READY = "GraphReady"


@dataclass(frozen=True)
class Stage:
    """What is particular to the condition of one stage of the work.

    `name` is the stage's name in `memory status --kube`. An object need not have an `optional` condition, and is Ready
    without it, unless its reason is one that only a person can remedy. `nothing_to_do` are the reasons for which the
    condition does not hold although the operator has nothing left to do for it.
    """

    name: str
    optional: bool = False
    nothing_to_do: frozenset[Reason] = frozenset()


STAGES: Mapping[ConditionType, Stage] = {
    ConditionType.DATABASE_REACHABLE: Stage("database"),
    ConditionType.EXTENSION_READY: Stage("extension"),
    ConditionType.SCHEMA_READY: Stage("schema"),
    ConditionType.EMBEDDER_READY: Stage("embedder"),
    ConditionType.BACKFILLED: Stage("backfill"),
    ConditionType.INDEX_READY: Stage("index"),
    ConditionType.MODEL_ACTIVE: Stage("model active"),
    ConditionType.GRAPH_READY: Stage(
        "graph",
        optional=True,
        nothing_to_do=frozenset(
            {Reason.DISABLED, Reason.FILLING, Reason.GRAPH_NOT_PROGRESSING, Reason.WAITING},
        ),
    ),
}
"""Every condition but the three summaries, in the order of the work."""

SUMMARY_CONDITIONS = tuple(kind for kind in ConditionType if kind not in STAGES)
OPTIONAL_CONDITIONS = frozenset(kind for kind, stage in STAGES.items() if stage.optional)


@dataclass(frozen=True)
class Verdict:
    """The finding about one condition: its status, a reason of the closed set, and a message that names the cause."""

    status: ConditionStatus
    reason: Reason
    message: str
    remedy: str | None = None  # more exact than the reason's own

    @classmethod
    def yes(cls, reason: Reason, message: str) -> "Verdict":
        """Return a verdict that the condition holds."""
        return cls(ConditionStatus.TRUE, reason, message)

    @classmethod
    def no(cls, reason: Reason, message: str, remedy: str | None = None) -> "Verdict":
        """Return a verdict that the condition does not hold, for this reason."""
        return cls(ConditionStatus.FALSE, reason, message, remedy)

    @classmethod
    def unknown(cls, reason: Reason, message: str) -> "Verdict":
        """Return a verdict that the operator cannot tell whether the condition holds."""
        return cls(ConditionStatus.UNKNOWN, reason, message)

    @property
    def holds(self) -> bool:
        """Return whether the condition is known to hold."""
        return self.status is ConditionStatus.TRUE

    @property
    def stalls(self) -> bool:
        """Return whether only a person can make the condition hold."""
        return self.status is not ConditionStatus.TRUE and self.reason.stalls

    @property
    def text(self) -> str:
        """Return the message as a sentence, followed by the remedy if the condition does not hold."""
        remedy = self.reason.remedy if self.remedy is None else self.remedy
        message = self.message if self.message.endswith((".", "!", "?", "}")) else f"{self.message}."
        parts = (message, "" if self.holds else remedy)
        return " ".join(part for part in parts if part)[:MESSAGE_LIMIT]


def timestamp(moment: datetime) -> str:
    """Format a moment as Kubernetes does: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: str) -> datetime:
    """Parse a timestamp from a Kubernetes object."""
    return datetime.fromisoformat(text)


def render(
    verdicts: Mapping[ConditionType, Verdict],
    previous: Iterable[Mapping[str, Any]],
    *,
    generation: int,
    now: datetime,
) -> list[dict[str, Any]]:
    """Return the conditions to write, in the order of ConditionType."""
    before = by_type(previous)
    return [
        {
            "type": kind.value,
            "status": verdicts[kind].status.value,
            "reason": verdicts[kind].reason.code,
            "message": verdicts[kind].text,
            "observedGeneration": generation,
            "lastTransitionTime": timestamp(_since(kind, verdicts[kind], before, now)),
        }
        for kind in ConditionType
        if kind in verdicts
    ]


def overdue(kind: ConditionType, verdict: Verdict, previous: Iterable[Mapping[str, Any]], now: datetime) -> bool:
    """Return whether the condition stalls the object now.

    That is so if only a person can make the condition hold, and no grace period of the verdict's reason is running.
    """
    if not verdict.stalls or verdict.reason not in DELIVERED_BY_OTHERS:
        return verdict.stalls
    return now - _since(kind, verdict, by_type(previous), now) >= GRACE_PERIOD


def by_type(conditions: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Return the written conditions as a mapping from condition type to condition."""
    return {str(condition.get("type")): condition for condition in conditions}


def _since(kind: ConditionType, verdict: Verdict, before: Mapping[str, Mapping[str, Any]], now: datetime) -> datetime:
    """Return the transition time of the condition: `now` if the verdict begins a transition, else the written time."""
    old = before.get(kind.value, {})
    awaits = kind not in SUMMARY_CONDITIONS and verdict.reason in DELIVERED_BY_OTHERS
    same = old.get("status") == verdict.status.value and (not awaits or old.get("reason") == verdict.reason.code)
    return parse_timestamp(old["lastTransitionTime"]) if same and old.get("lastTransitionTime") else now
