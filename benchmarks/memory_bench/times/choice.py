"""Chooses a setting on some of LoCoMo's conversations, to be judged on the others (ADR 33)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from memory_bench.studies.gains import Fold, bounded, cheapest_of_best, gains_of
from memory_bench.studies.questions import RECALL, Numbers
from memory_bench.times.boosting import TimeScores

HALVES = ("first half", "second half")


def choose(one: TimeScores, prompts: TimeScores) -> tuple[int | None, int]:
    """Return the place of the admissible setting that gains most on questions that name a time.

    With it the number of admissible settings is returned. The place is None if no admissible setting gains.
    """
    wanted = one.only(one.named).gains[:, :, RECALL].mean(axis=1, dtype=np.float64)
    return cheapest_of_best(bounded([one], [prompts]), wanted, lambda place: one.settings[place].order)


def halves(searched: Sequence[str | None]) -> list[NDArray[np.bool_]]:
    """Return which questions belong to each half; their scopes are dealt in turn, in the order of their questions."""
    dealt = {scope: place % len(HALVES) for place, scope in enumerate(dict.fromkeys(searched))}
    return [np.array([dealt[scope] == half for scope in searched]) for half in range(len(HALVES))]


def folds(one: TimeScores, prompts: TimeScores) -> list[Fold]:
    """Return what each half has chosen for it by the other one."""
    first, second = halves(one.scopes)
    chosen = [choose(one.only(part), prompts.only(part)) for part in (second, first)]
    return [Fold(name, *found) for name, found in zip(HALVES, chosen, strict=True)]


def out_of_fold(one: TimeScores, chosen: Sequence[Fold]) -> Numbers:
    """Return the gains of each question by what the other half chose, shape (questions, measures)."""
    gains = np.zeros_like(one.plain)
    for part, fold in zip(halves(one.scopes), chosen, strict=True):
        gains[part] = gains_of(one, fold.setting)[part]
    return gains
