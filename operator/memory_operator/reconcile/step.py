"""What one step of the work concludes: its condition, and the writes that would bring it about."""

from dataclasses import dataclass

from memory_operator.api.conditions import Verdict
from memory_operator.api.reasons import Reason
from memory_operator.reconcile.observed import Problem
from memory_operator.reconcile.plan import Action


@dataclass(frozen=True)
class Step:
    """A verdict, and the actions that it calls for."""

    verdict: Verdict
    actions: tuple[Action, ...] = ()


def waiting(for_what: str) -> Step:
    """Nothing can be said or done before something else is there."""
    return Step(Verdict.unknown(Reason.WAITING, f"Waiting for {for_what}."))


def failed(problem: Problem, prefix: str = "") -> Step:
    """A problem as a verdict."""
    return Step(Verdict.no(problem.reason, f"{prefix}{problem.message}", problem.remedy or None))
