"""Decides from facts alone what a swap does next.

The stage is recorded, but each decision is made from what the database holds. Therefore a swap whose process was killed
is continued from the point that it had reached.

    planned -> filling -> indexing -> gating -> ready -> flipped -> finished
                                         |        |         `-> (a rollback is a swap of its own)
                                      refused ----+-> aborted

A swap whose gate could not decide is in the stage refused, too: it stays there until it is measured again or aborted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Stage(StrEnum):
    """The stages of a swap."""

    PLANNED = "planned"
    FILLING = "filling"
    INDEXING = "indexing"
    GATING = "gating"
    READY = "ready"
    REFUSED = "refused"
    FLIPPED = "flipped"
    FINISHED = "finished"
    ABORTED = "aborted"


class GateOutcome(StrEnum):
    """What the gate says about the next model: it may become active, it may not, or the questions are too few."""

    PASSED = "passed"
    REFUSED = "refused"
    UNDECIDED = "undecided"


OPEN_STAGES = frozenset({Stage.PLANNED, Stage.FILLING, Stage.INDEXING, Stage.GATING, Stage.READY, Stage.REFUSED})

TRANSITIONS: Mapping[Stage, frozenset[Stage]] = {
    Stage.PLANNED: frozenset({Stage.FILLING, Stage.ABORTED}),
    Stage.FILLING: frozenset({Stage.INDEXING, Stage.REFUSED, Stage.ABORTED}),
    Stage.INDEXING: frozenset({Stage.GATING, Stage.FILLING, Stage.ABORTED}),
    Stage.GATING: frozenset({Stage.READY, Stage.REFUSED, Stage.FILLING, Stage.ABORTED}),
    Stage.READY: frozenset({Stage.FLIPPED, Stage.GATING, Stage.FILLING, Stage.ABORTED}),
    Stage.REFUSED: frozenset({Stage.FILLING, Stage.ABORTED}),
    Stage.FLIPPED: frozenset({Stage.FINISHED}),
    Stage.FINISHED: frozenset(),
    Stage.ABORTED: frozenset(),
}

MAX_PENDING_SHARE = 0.002  # of the rows; those that were written in the last moments are always pending
MAX_QUARANTINED_SHARE = 0.01  # of the rows; more of them without a vector of the next model refuse it


class Action(StrEnum):
    """The actions of which a swap consists."""

    ADD_COLUMN = "add column"
    FILL = "fill"
    INDEX = "index"
    MEASURE = "measure"
    REFUSE = "refuse"
    FLIP = "flip"
    REST = "rest"


@dataclass(frozen=True, slots=True)
class Fill:
    """Counts of the rows that should have a vector of the next model.

    `wanted` counts all of these rows, `pending` those still to be embedded, and `quarantined` those given up after
    failures. `blank` counts those given up because they have no text, which no model could embed.
    """

    wanted: int
    pending: int
    quarantined: int
    blank: int = 0

    @property
    def full(self) -> bool:
        """Whether every row has a vector, apart from those given up and the few that were written a moment ago."""
        return self.pending <= self.wanted * MAX_PENDING_SHARE

    @property
    def refused(self) -> bool:
        """Whether so many rows are quarantined that the next model is refused."""
        return self.quarantined > self.wanted * MAX_QUARANTINED_SHARE


@dataclass(frozen=True, slots=True)
class SwapFacts:
    """The facts from which the next action of a swap is decided.

    `gated` says whether the next model must pass a measurement. `outcome` is the result of the measurement; it is None
    if the model has not been measured in this run. `is_rollback` says whether the swap returns to the previous model,
    which was active with the rows that it cannot embed, so that they do not refuse it.
    """

    stage: Stage
    has_column: bool
    fill: Fill
    index_valid: bool
    gated: bool
    outcome: GateOutcome | None = None
    flip_wanted: bool = True
    is_rollback: bool = False


def decide(facts: SwapFacts) -> Action:
    """Return the next action of a swap. Each action changes a fact, so a sequence of decisions comes to an end."""
    rules = (
        (facts.stage not in OPEN_STAGES or facts.stage is Stage.REFUSED, Action.REST),
        (not facts.has_column, Action.ADD_COLUMN),
        (not facts.fill.full, Action.FILL),
        (facts.fill.refused and not facts.is_rollback, Action.REFUSE),
        (not facts.index_valid, Action.INDEX),
        (facts.gated and facts.outcome is None, Action.MEASURE),
        (facts.gated and facts.outcome is not GateOutcome.PASSED, Action.REFUSE),
        (facts.flip_wanted, Action.FLIP),
    )
    return next((action for applies, action in rules if applies), Action.REST)


def path(stage: Stage, goal: Stage) -> tuple[Stage, ...]:
    """Return the stages after `stage` up to `goal`, by the fewest permitted transitions.

    The result is empty if `stage` is `goal` or no permitted transitions lead there. No path passes through `aborted` or
    `refused`.
    """
    paths: list[tuple[Stage, ...]] = [()]
    seen = {stage}
    while paths:
        found = paths.pop(0)
        last = found[-1] if found else stage
        if last is goal:
            return found
        if found and last in {Stage.REFUSED, Stage.ABORTED}:
            continue
        for following in sorted(TRANSITIONS[last] - seen):
            seen.add(following)
            paths.append((*found, following))
    return ()
