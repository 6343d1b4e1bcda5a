"""What a reconcile decides: the writes in order, the status to report, and the delay until the next one."""

from dataclasses import dataclass

from memory_operator.api.conditions import Verdict
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import Manifest
from memory_operator.reconcile.facts import Observed, Problem, Recommendation
from memory_operator.resources.drift import drifted


@dataclass(frozen=True)
class Apply:
    """Create or change an object by server-side apply."""

    manifest: Manifest


@dataclass(frozen=True)
class Delete:
    """Delete an object; Kubernetes deletes its dependents in the background."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True)
class SetFinalizer:
    """Add our finalizer to the MemoryIndex, or remove it."""

    present: bool


Action = Apply | Delete | SetFinalizer


@dataclass(frozen=True)
class Step:
    """The verdict on one condition, and the writes that would make it hold."""

    verdict: Verdict
    actions: tuple[Action, ...] = ()


@dataclass(frozen=True)
class Plan:
    """The outcome of one reconcile; `status` is None where the object is about to vanish.

    `requeue_after` is in seconds; 0 means at once.
    """

    actions: tuple[Action, ...]
    status: Manifest | None
    requeue_after: float
    recommendation: Recommendation | None = None


def waiting_for(what: str) -> Step:
    """Return a step that can neither decide nor write anything before `what` is available."""
    return Step(Verdict.unknown(Reason.WAITING, f"Waiting for {what}."))


def failed_step(problem: Problem, prefix: str = "") -> Step:
    """Return a step without writes whose condition fails for the problem's reason."""
    return Step(Verdict.no(problem.reason, f"{prefix}{problem.message}", problem.remedy or None))


def apply_drifted(observed: Observed, *manifests: Manifest) -> tuple[Action, ...]:
    """Return the writes for those manifests whose live object is missing or differs."""
    live = observed.children
    return tuple(Apply(one) for one in manifests if drifted(one, live.get((one["kind"], one["metadata"]["name"]))))
