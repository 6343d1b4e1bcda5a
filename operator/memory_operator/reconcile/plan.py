"""What a reconcile decides: the writes of each step, the status to report, and the delay until the next reconcile."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from memory_operator.api.conditions import ConditionType, Verdict
from memory_operator.api.reasons import Reason
from memory_operator.api.spec import Manifest
from memory_operator.reconcile.facts import Observed, Problem, Recommendation
from memory_operator.resources.drift import Admission, drifted, name_of

MOST_FIELDS = 4  # that a message names
# By the component that an object is labelled with: the condition that needs the object.
CONDITION_OF = {
    "extension": ConditionType.EXTENSION_READY,
    "workers": ConditionType.SCHEMA_READY,
    "migrate": ConditionType.SCHEMA_READY,
    "embedder": ConditionType.EMBEDDER_READY,
    "fetch": ConditionType.EMBEDDER_READY,
    "backfill": ConditionType.BACKFILLED,
    "sync": ConditionType.BACKFILLED,
    "index": ConditionType.INDEX_READY,
    "graph": ConditionType.GRAPH_READY,
    "embedder-next": ConditionType.MODEL_ACTIVE,
    "swap": ConditionType.MODEL_ACTIVE,
    "swap-abort": ConditionType.MODEL_ACTIVE,
}

# Of conditions that wait for a worker which stores something in the database.
_STORING = frozenset(
    {
        Reason.BACKFILLING,
        Reason.BACKFILL_NOT_PROGRESSING,
        Reason.SWAPPING,
        Reason.SYNC_NOT_PROGRESSING,
        Reason.GRAPH_NOT_PROGRESSING,
    }
)


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

    @property
    def stops(self) -> bool:
        """Whether this change stops pods: it scales a Deployment to zero or suspends a Job."""
        return self.changes["spec"].get("replicas") == 0 or self.changes["spec"].get("suspend") is True


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
        wanted: what the steps would apply, also while the MemoryIndex is paused and so nothing is written.
        finalizer: True adds our finalizer before any other write, False removes it last, None changes nothing.
        left_behind: sentences for an Event about what a deletion leaves behind.
    """

    status: Manifest | None
    requeue_after: float
    steps: Mapping[ConditionType, Step] = field(default_factory=dict)
    wanted: tuple[Manifest, ...] = ()
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


def manifests(steps: Iterable[Step]) -> tuple[Manifest, ...]:
    """Return what the steps would apply, in order."""
    return tuple(action.manifest for step in steps for action in step.actions if isinstance(action, Apply))


def with_admissions(steps: Mapping[ConditionType, Step], observed: Observed) -> dict[ConditionType, Step]:
    """Return the steps; a condition gets a note if an admission webhook or policy has changed a field of its objects.

    The note names the fields. The status of the condition stays, because only the pods decide it. Its reason becomes
    `ChangedByAdmission` if the condition holds and nobody has to act.
    """
    notes: dict[ConditionType, list[str]] = {}
    for (kind, name), admission in sorted(observed.admissions.items()):
        if admission.changes and admission.component in CONDITION_OF:
            notes.setdefault(CONDITION_OF[admission.component], []).append(_changed(kind, name, admission))
    return {condition: _with_notes(step, notes.get(condition, [])) for condition, step in steps.items()}


def with_full_disk(steps: Mapping[ConditionType, Step], observed: Observed) -> dict[ConditionType, Step]:
    """Return the steps with the full disk as the reason of each condition whose workers wait for room on it."""
    if not observed.disk_full:
        return dict(steps)
    message = "A worker cannot store what it has made, since the disk of the database is full; it waits for room."
    full = Verdict.no(Reason.DATABASE_FULL, message)
    return {
        kind: replace(step, verdict=full) if step.verdict.reason in _STORING and not step.verdict.holds else step
        for kind, step in steps.items()
    }


def _with_notes(step: Step, notes: list[str]) -> Step:
    if not notes:
        return step
    verdict = step.verdict
    reason = Reason.CHANGED_BY_ADMISSION if verdict.holds and not verdict.reason.remedy else verdict.reason
    text = verdict.message if verdict.message.endswith((".", "!", "?", "}")) else f"{verdict.message}."
    return replace(step, verdict=replace(verdict, reason=reason, message=" ".join([text, *notes])))


def _changed(kind: str, name: str, admission: Admission) -> str:
    fields = sorted(name_of(path) for path in admission.changes)
    more = f" and {len(fields) - MOST_FIELDS} more fields" if len(fields) > MOST_FIELDS else ""
    return f"Admission has changed {', '.join(fields[:MOST_FIELDS])}{more} of {kind} {name}."


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
    return tuple(Apply(one) for one in manifests if has_drifted(observed, one))


def has_drifted(observed: Observed, desired: Manifest) -> bool:
    """Return whether the live object is missing, or differs in more than what admission has changed."""
    key = (desired["kind"], desired["metadata"]["name"])
    return drifted(desired, observed.children.get(key), observed.admissions.get(key))
