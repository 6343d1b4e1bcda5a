"""The gains of settings over a baseline on several sets: bounds, choice by the other sets, and corrected p values.

Each set is judged by what the other sets choose. The p value of a gain is the share of random flips of signs with which
the greatest gain of all settings is at least as great: P. H. Westfall and S. S. Young, Resampling-based multiple
testing, Wiley, 1993.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from memory_bench.studies.questions import MEASURES, Numbers
from memory_recall.evaluation.significance import RESAMPLES, Comparison, compare

OWN_SET = "homelab"
LARGEST_LOSS: Mapping[str, float] = {"recall@10": 0.002, "ndcg@10": 0.003}
"""By how much the mean of a set may fall."""
ROUNDING = 1e-9
ALMOST = 0.001  # less of what is wanted is given up for a cheaper or a milder setting
_ROUNDING_OF_SUMS = 1e-7  # of sums in single precision
_WORSE = 0.05
_CHUNK = 500

S_co = TypeVar("S_co", covariant=True)
Gains = Mapping[str, Comparison]
"""How the scores change by measure."""


@dataclass(frozen=True, slots=True)
class SettingScores(Generic[S_co]):
    """The scores of one set: `plain` without the change that is studied, and `scores` with it in each of `settings`.

    The shapes are (questions, measures) and (settings, questions, measures).
    """

    name: str
    strata: tuple[str, ...]
    settings: tuple[S_co, ...]
    plain: Numbers
    scores: NDArray[np.float32]

    @property
    def gains(self) -> NDArray[np.float32]:
        """The scores with the change minus those without it."""
        difference: NDArray[np.float32] = self.scores - self.plain.astype(np.float32)
        return difference


Scored = TypeVar("Scored", bound=SettingScores[object])


@dataclass(frozen=True, slots=True)
class Fold:
    """What all other sets choose for the set `judged`.

    `setting` is the place of the chosen setting, or None if none was admissible: then nothing is changed.
    """

    judged: str
    setting: int | None
    admissible: int


def bounded(sets: Sequence[Scored], prompts: Sequence[Scored] = ()) -> NDArray[np.bool_]:
    """Return which settings make no set, and no set of questions inside prompts, worse than `LARGEST_LOSS`."""
    allowed = np.ones(len(sets[0].settings), dtype=bool)
    for one in (*sets, *prompts):
        means = one.gains.mean(axis=1)
        for place, measure in enumerate(MEASURES):
            allowed &= means[:, place] >= -LARGEST_LOSS[measure] - ROUNDING
    return allowed


def cheapest_of_best(
    allowed: NDArray[np.bool_], wanted: NDArray[np.floating], cost: Callable[[int], tuple[object, ...]]
) -> tuple[int | None, int]:
    """Return, of the allowed settings that gain at most `ALMOST` less than the best, the place of the cheapest.

    With it the number of allowed settings is returned. The place is None if no allowed setting gains. `wanted` holds
    the gains and `cost` says what a setting costs, both by place.
    """
    count = int(allowed.sum())
    if not count or wanted[allowed].max() <= 0:
        return None, count
    near = np.flatnonzero(allowed & (wanted >= wanted[allowed].max() - ALMOST - ROUNDING))
    return min(map(int, near), key=cost), count


def folds(
    sets: Sequence[Scored],
    prompts: Sequence[Scored],
    choose: Callable[[Sequence[Scored], Sequence[Scored]], tuple[int | None, int]],
) -> list[Fold]:
    """Return one fold for each set, which all others choose for; `prompts` are of the same sets.

    `choose` returns the place of the chosen setting, or None, and the number of admissible settings.
    """
    return [Fold(one.name, *choose(without(sets, one.name), without(prompts, one.name))) for one in sets]


def without(sets: Sequence[Scored], name: str) -> list[Scored]:
    """Return all sets but the one of this name."""
    return [one for one in sets if one.name != name]


def gains_of(one: SettingScores[object], setting: int | None) -> Numbers:
    """Return the gains of one setting on a set, shape (questions, measures); zeros for None."""
    if setting is None:
        return np.zeros_like(one.plain)
    chosen: Numbers = one.gains[setting].astype(np.float64)
    return chosen


def mean_over_sets(sets: Sequence[SettingScores[object]]) -> NDArray[np.float64]:
    """Return the mean gains of each setting, shape (settings, measures); every set counts the same."""
    found: NDArray[np.float64] = np.mean([one.gains.mean(axis=1, dtype=np.float64) for one in sets], axis=0)
    return found


def evenly(parts: Sequence[NDArray[np.floating]]) -> NDArray[np.float64]:
    """Join gains of several sets, scaled so that the mean over all questions is the mean of the sets' means.

    The questions are the last axis but one: (questions, measures) or (settings, questions, measures).
    """
    count = sum(one.shape[-2] for one in parts)
    return np.concatenate([one * (count / len(parts) / one.shape[-2]) for one in parts], axis=-2)


def compare_gains(gains: Numbers, *, seed: int) -> Gains:
    """Return the mean of each measure's gains with its interval and p value; the shape is (questions, measures)."""
    return {
        measure: compare([0.0] * len(gains), gains[:, place].tolist(), seed=seed)
        for place, measure in enumerate(MEASURES)
    }


def own_gains(sets: Sequence[Scored], setting: int | None, *, seed: int) -> dict[str, Gains]:
    """Return the gains of a setting on our own set under "", and those on each of its strata under its name.

    Nothing is returned if our own set was not measured, or no other set was.
    """
    own = next((one for one in sets if one.name == OWN_SET), None)
    if own is None or len(sets) == 1:
        return {}
    gains, strata = gains_of(own, setting), np.array(own.strata)
    return {"": compare_gains(gains, seed=seed)} | {
        stratum: compare_gains(gains[strata == stratum], seed=seed) for stratum in sorted(set(own.strata))
    }


def is_bounded(gains: Gains) -> bool:
    """Return whether no measure falls by more than `LARGEST_LOSS`."""
    return all(gains[measure].difference >= -loss - ROUNDING for measure, loss in LARGEST_LOSS.items())


def is_worse(gains: Gains) -> bool:
    """Return whether a measure is significantly lower (p < .05)."""
    return any(one.difference < 0 and one.p_value < _WORSE for one in gains.values())


def greatest_by_chance(gains: NDArray[np.float32], *, seed: int) -> NDArray[np.float32]:
    """Return the greatest absolute mean gain of all settings for each random flip of signs, shape (10,000,).

    `gains` has the shape (settings, questions) and holds one measure's gains on the same questions.
    """
    chance = np.random.default_rng(seed)
    distinct = np.unique(gains, axis=0).T
    found = []
    for start in range(0, RESAMPLES, _CHUNK):
        signs = chance.choice(np.array((-1, 1), dtype=np.float32), (min(_CHUNK, RESAMPLES - start), len(distinct)))
        found.append(np.abs(signs @ distinct).max(axis=1) / len(distinct))
    return np.concatenate(found)


def corrected_p(by_chance: NDArray[np.float32], observed: float) -> float:
    """Return the p value (two-sided) of a mean gain, given the greatest gains by chance."""
    return float(((by_chance >= abs(observed) - _ROUNDING_OF_SUMS).sum() + 1) / (len(by_chance) + 1))
