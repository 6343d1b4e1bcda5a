"""Conditions of a MemoryIndex: what each says, and how a new verdict meets the one already written.

The transition time moves only when the status does, and a condition that says the same as before is returned
unchanged, so that a settled object yields an identical list and therefore no write.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from memory_operator.api.reasons import Reason

MESSAGE_LIMIT = 1024  # enough for a scheduler's message; the API allows 32768


class ConditionStatus(StrEnum):
    """The three values of a condition's status."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class ConditionType(StrEnum):
    """The conditions, in the order in which the work happens."""

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


WORK_CONDITIONS = (
    ConditionType.DATABASE_REACHABLE,
    ConditionType.EXTENSION_READY,
    ConditionType.SCHEMA_READY,
    ConditionType.EMBEDDER_READY,
    ConditionType.BACKFILLED,
    ConditionType.INDEX_READY,
)


@dataclass(frozen=True)
class Verdict:
    """What one step found: its status, the closed reason, and a sentence that names the object."""

    status: ConditionStatus
    reason: Reason
    message: str
    remedy: str | None = None  # a more exact one than the reason's own

    @classmethod
    def yes(cls, reason: Reason, message: str) -> "Verdict":
        """The condition holds."""
        return cls(ConditionStatus.TRUE, reason, message)

    @classmethod
    def no(cls, reason: Reason, message: str, remedy: str | None = None) -> "Verdict":
        """The condition does not hold, for this reason."""
        return cls(ConditionStatus.FALSE, reason, message, remedy)

    @classmethod
    def unknown(cls, reason: Reason, message: str) -> "Verdict":
        """Whether the condition holds cannot be told."""
        return cls(ConditionStatus.UNKNOWN, reason, message)

    @property
    def holds(self) -> bool:
        """Whether the condition is known to hold."""
        return self.status is ConditionStatus.TRUE

    @property
    def stalls(self) -> bool:
        """Whether only a person can make it hold."""
        return self.status is not ConditionStatus.TRUE and self.reason.stalls

    @property
    def text(self) -> str:
        """The sentence, with the remedy behind it where there is something to remedy."""
        remedy = self.reason.remedy if self.remedy is None else self.remedy
        message = self.message if self.message.endswith((".", "!", "?", "}")) else f"{self.message}."
        parts = (message, "" if self.holds else remedy)
        return " ".join(part for part in parts if part)[:MESSAGE_LIMIT]


def timestamp(moment: datetime) -> str:
    """A moment in the form the API uses."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: str) -> datetime:
    """The moment that an API timestamp names."""
    return datetime.fromisoformat(text)


def render(
    verdicts: Mapping[ConditionType, Verdict],
    previous: Iterable[Mapping[str, Any]],
    *,
    generation: int,
    now: datetime,
) -> list[dict[str, Any]]:
    """The conditions to write, in the fixed order; the transition time of a status that did not change is kept."""
    before = {str(condition.get("type")): condition for condition in previous}
    rendered = []
    for kind in ConditionType:
        verdict = verdicts.get(kind)
        if verdict is None:
            continue
        old = before.get(kind.value, {})
        unchanged = old.get("status") == verdict.status.value and old.get("lastTransitionTime")
        rendered.append(
            {
                "type": kind.value,
                "status": verdict.status.value,
                "reason": verdict.reason.code,
                "message": verdict.text,
                "observedGeneration": generation,
                "lastTransitionTime": old["lastTransitionTime"] if unchanged else timestamp(now),
            }
        )
    return rendered
