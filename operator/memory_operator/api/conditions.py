"""The conditions of a MemoryIndex, and the verdicts that they are rendered from.

The transition time of a condition changes only with its status, and an unchanged condition is rendered as it was
written, so that a settled object yields an identical list and therefore no write.
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
    """The finding about one condition: its status, a reason of the closed set, and a sentence that names the object."""

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
        """Return a verdict that it is unknown whether the condition holds."""
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
        """Return the sentence, followed by the remedy where the condition does not hold."""
        remedy = self.reason.remedy if self.remedy is None else self.remedy
        message = self.message if self.message.endswith((".", "!", "?", "}")) else f"{self.message}."
        parts = (message, "" if self.holds else remedy)
        return " ".join(part for part in parts if part)[:MESSAGE_LIMIT]


def timestamp(moment: datetime) -> str:
    """Format a moment as the API does: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: str) -> datetime:
    """Parse a timestamp of the API."""
    return datetime.fromisoformat(text)


def render(
    verdicts: Mapping[ConditionType, Verdict],
    previous: Iterable[Mapping[str, Any]],
    *,
    generation: int,
    now: datetime,
) -> list[dict[str, Any]]:
    """Return the conditions to write, in the order of ConditionType.

    A condition whose status is that of the previous one keeps its transition time.
    """
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
