"""Decides by the rule of ADR 33 whether the periods that memories name count for the boost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from memory_bench.studies.gains import (
    ROUNDING,
    Fold,
    Gains,
    compare_gains,
    corrected_p,
    gains_of,
    greatest_by_chance,
    is_bounded,
    is_worse,
)
from memory_bench.studies.questions import RECALL
from memory_bench.times.boosting import TimeScores
from memory_bench.times.choice import choose, folds, out_of_fold
from memory_bench.times.expressions import Finder
from memory_bench.times.memory_times import Capture

Verdict = Literal["adopted", "rejected"]

CHOOSING_SET = "locomo"
LEAST_GAIN, LARGEST_P = 0.01, 0.05
LEAST_QUESTIONS = 20
MEAN_MS, MS_OF_99, MOST_PERIODS = 2.0, 25.0, 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The figures by which ADR 33 decides.

    `named` is over the questions of LoCoMo that name a time, out of fold, and `p` that of its recall@10, corrected for
    all settings. `kept` has the gains on everything that may not lose, by name. `shipped` is the place of the setting
    that all of LoCoMo chooses, and `captures` what its finder takes, by set.
    """

    folds: Sequence[Fold]
    questions: int
    named: Gains
    p: float
    shipped: int | None
    kept: Mapping[str, Gains]
    captures: Mapping[str, Capture]

    @property
    def gains(self) -> bool:
        """Whether questions that name a time gain enough, and not by chance."""
        gained = self.named["recall@10"].difference >= LEAST_GAIN - ROUNDING and self.p < LARGEST_P
        return gained and self.named["ndcg@10"].difference >= -ROUNDING

    @property
    def harmless(self) -> bool:
        """Whether nothing loses more than allowed, or significantly."""
        return all(is_bounded(one) and not is_worse(one) for one in self.kept.values())

    @property
    def in_budget(self) -> bool:
        """Whether finding the periods is quick enough, and they are few enough to be kept."""
        return self.shipped is not None and all(
            one.mean <= MEAN_MS and one.of_99 <= MS_OF_99 and one.periods <= MOST_PERIODS
            for one in self.captures.values()
        )

    @property
    def verdict(self) -> Verdict:
        """What the rule says."""
        return "adopted" if self.gains and self.harmless and self.in_budget else "rejected"

    def figures(self) -> dict[str, object]:
        """Return the main figures, as the last line of output has them."""
        return {
            "questions": self.questions,
            **{f"{measure}_gain": round(one.difference, 4) for measure, one in self.named.items()},
            "p": round(self.p, 4),
            "worst_recall@10": round(min(one["recall@10"].difference for one in self.kept.values()), 4),
            "worst_ndcg@10": round(min(one["ndcg@10"].difference for one in self.kept.values()), 4),
            "verdict": self.verdict,
        }


def judge(
    sets: Sequence[TimeScores],
    prompts: Sequence[TimeScores],
    captures: Mapping[str, Mapping[Finder, Capture]],
    *,
    seed: int,
) -> Outcome:
    """Judge by the rule: LoCoMo out of fold, the other sets by what all of LoCoMo chooses.

    `prompts` has the same questions inside prompts, and `captures` what each finder takes on the sets with times of
    creation.

    Raises:
        StopIteration: LoCoMo is not among the sets.
    """
    one, asked = (next(each for each in scored if each.name == CHOOSING_SET) for scored in (sets, prompts))
    chosen, (shipped, _) = folds(one, asked), choose(one, asked)
    gains = out_of_fold(one, chosen)
    tried = greatest_by_chance(one.only(one.named).gains[:, :, RECALL], seed=seed)
    named = compare_gains(gains[one.named], seed=seed)
    kept = {
        one.name: compare_gains(gains, seed=seed),
        f"{one.name}, prompts": compare_gains(out_of_fold(asked, chosen), seed=seed),
    }
    for other, in_prompts in zip(sets, prompts, strict=True):
        if other.name != CHOOSING_SET:
            kept |= _other(other, in_prompts, shipped, seed)
    finder = one.settings[shipped].finder if shipped is not None else None
    taken = {name: found[finder] for name, found in captures.items()} if finder else {}
    p = corrected_p(tried, named["recall@10"].difference)
    return Outcome(chosen, int(one.named.sum()), named, p, shipped, kept, taken)


def _other(one: TimeScores, prompts: TimeScores, setting: int | None, seed: int) -> dict[str, Gains]:
    """Return the gains of a set that chooses nothing: all questions, those that name a time, and inside prompts."""
    gains = gains_of(one, setting)
    found = {one.name: gains, f"{one.name}, prompts": gains_of(prompts, setting)}
    if one.named.sum() >= LEAST_QUESTIONS:
        found[f"{one.name}, naming a time"] = gains[one.named]
    return {name: compare_gains(each, seed=seed) for name, each in found.items()}
