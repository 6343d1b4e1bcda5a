"""What a reconcile decides: the writes of each step, the status to report, and the delay until the next reconcile."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from memory_operator.api.conditions import ConditionType, Verdict
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
    """Delete the object with this uid, and no other of its name; its dependents are deleted in the background."""

    kind: str
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True)
class Patch:
    """Change these fields of the object with this uid, and of no other of its name; None removes a field."""

    kind: str
    namespace: str
    name: str
    uid: str
    changes: Manifest


Action = Apply | Delete | Patch


@dataclass(frozen=True)
class Step:
    """The verdict on one condition, and the writes that would make it hold."""

    verdict: Verdict
    actions: tuple[Action, ...] = ()


@dataclass(frozen=True)
class Plan:
    """The outcome of one reconcile.

    Attributes:
        status: the status to write; None if this reconcile completes the deletion of the MemoryIndex.
        requeue_after: seconds until the next reconcile; 0 means at once.
        steps: the step of each condition; a write that is refused stops only the later writes of the same step.
        finalizer: True adds our finalizer before any other write, False removes it last, None changes nothing.
        left_behind: sentences for an Event about what a deletion leaves behind.
    """

    status: Manifest | None
    requeue_after: float
    steps: Mapping[ConditionType, Step] = field(default_factory=dict)
    finalizer: bool | None = None
    left_behind: tuple[str, ...] = ()
    recommendation: Recommendation | None = None

    @property
    def actions(self) -> tuple[Action, ...]:
        """The writes of all steps, in order."""
        return tuple(action for step in self.steps.values() for action in step.actions)


def waiting_for(what: str) -> Step:
    """Return a step without writes, whose verdict is unknown because `what` is not available yet."""
    return Step(Verdict.unknown(Reason.WAITING, f"Waiting for {what}."))


def failed_step(problem: Problem, prefix: str = "") -> Step:
    """Return a step without writes, whose failing verdict has the problem's reason, message and remedy."""
    return Step(Verdict.no(problem.reason, f"{prefix}{problem.message}", problem.remedy or None))


def delete_existing(observed: Observed, *children: tuple[str, str]) -> tuple[Delete, ...]:
    """Return the writes that delete those of these children, each given by its kind and name, that exist."""
    found = (
        (kind, observed.children[kind, name]["metadata"])
        for kind, name in children
        if (kind, name) in observed.children
    )
    return tuple(Delete(kind, meta["namespace"], meta["name"], meta["uid"]) for kind, meta in found)


def apply_drifted(observed: Observed, *manifests: Manifest) -> tuple[Action, ...]:
    """Return the writes that apply the manifests whose live objects are missing or differ."""
    live = observed.children
    return tuple(Apply(one) for one in manifests if drifted(one, live.get((one["kind"], one["metadata"]["name"]))))
