"""What a decision consists of: writes to carry out in order, the status to report, and when to look again."""

from dataclasses import dataclass

from memory_operator.api.spec import Manifest
from memory_operator.reconcile.observed import Recommendation


@dataclass(frozen=True)
class Apply:
    """Create or change an object by server-side apply."""

    manifest: Manifest


@dataclass(frozen=True)
class Delete:
    """Delete an object, its dependents in the background."""

    api_version: str
    kind: str
    namespace: str
    name: str


@dataclass(frozen=True)
class SetFinalizer:
    """Put our finalizer on the object, or take it off."""

    present: bool


Action = Apply | Delete | SetFinalizer


@dataclass(frozen=True)
class Plan:
    """The outcome of one decision; `status` is None where the object is about to vanish."""

    actions: tuple[Action, ...]
    status: Manifest | None
    again_seconds: float
    recommendation: Recommendation | None = None
