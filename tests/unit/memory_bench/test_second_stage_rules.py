"""What the rules of ADR 27 make of invented figures of MaxSim and MMR."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from memory_bench.second_stage.choice import choose_maxsim, choose_mmr
from memory_bench.second_stage.costs import Costs
from memory_bench.second_stage.diversity import (
    DiversityScores,
    FactScores,
)
from memory_bench.second_stage.settings import (
    MaxSimSetting,
    MmrSetting,
)
from memory_bench.second_stage.verdict import (
    Changes,
    MaxSimOutcome,
    MmrOutcome,
    judge_maxsim,
    judge_mmr,
)
from memory_bench.studies.gains import SettingScores, evenly
from memory_recall.evaluation.significance import Comparison

ALONE = MaxSimSetting(20, "all", "exact", brief_only=False, mixing="share", weight=1.0)
COSTS = Costs(5.0, {"exact": 5.0, "signs": 5.0}, {"exact": 50_000.0, "signs": 2_000.0})


def gained(name: str, *gains: float, settings: Sequence[Any], count: int = 60) -> SettingScores[Any]:
    """Return a set in which each setting raises both scores of two in three questions by 1.5 times its gain."""
    plain = np.full((count, 2), 0.4)
    change = np.tile([1.5, 1.5, 0.0], count // 3)[None, :, None] * np.array(gains)[:, None, None]
    scores = (plain + change * np.ones((1, 1, 2))).astype(np.float32)
    return SettingScores(name, ("natural",) * count, tuple(settings), plain, scores)


def less_alike(scores: SettingScores[Any], *drops: float) -> DiversityScores:
    """Return the same scores of a set in which each setting makes the ten less alike by its drop."""
    count = len(scores.strata)
    alike = np.tile(0.6 - np.array(drops, dtype=np.float32)[:, None], (1, count))
    return DiversityScores(
        scores.name, scores.strata, scores.settings, scores.plain, scores.scores, np.full(count, 0.6), alike
    )


def test_what_gains_most_without_loss_is_chosen_and_of_equal_ones_the_cheapest() -> None:
    """The second setting loses on set b or in prompts; signs are cheaper than exact states, and 20 memories than 30."""
    few = [ALONE, replace(ALONE, weight=0.5)]
    good = gained("a", 0.03, 0.2, settings=few)
    assert choose_maxsim([good, gained("b", 0.03, -0.01, settings=few)], []) == (0, 1)
    assert choose_maxsim([good], [gained("a", 0.03, -0.01, settings=few)]) == (0, 1)
    assert choose_maxsim([gained("a", -0.1, -0.1, settings=few)], []) == (None, 0)
    assert choose_maxsim([gained("a", 0.0, 0.0, settings=few)], []) == (None, 2)
    costly = [replace(ALONE, depth=30, states="signs"), ALONE, replace(ALONE, states="signs"), *few[1:]]
    assert choose_maxsim([gained("a", 0.03, 0.03, 0.03, 0.0, settings=costly)], []) == (2, 4)


def test_the_setting_that_makes_the_ten_least_alike_is_chosen_and_of_equal_ones_the_mildest() -> None:
    """A setting that costs recall is not, whatever it does to likeness."""
    settings = [MmrSetting(0.5, 0.0, 20), MmrSetting(0.9, 0.0, 20), MmrSetting(0.5, 0.9, 20)]
    scores = gained("a", -0.1, 0.0, 0.0, settings=settings)
    assert choose_mmr([less_alike(scores, 0.3, 0.1, 0.1005)], []) == (1, 2)
    assert choose_mmr([less_alike(scores, 0.3, 0.1, 0.2)], []) == (2, 2)
    assert choose_mmr([less_alike(scores, 0.3, 0.0, 0.0)], []) == (None, 2)


def test_a_mean_over_sets_counts_every_set_the_same() -> None:
    """A set of three questions weighs as much as one of sixty."""
    joined = evenly([np.ones((60, 2)), np.zeros((3, 2))])
    assert joined.mean(axis=0).tolist() == pytest.approx([0.5, 0.5])
    assert evenly([np.ones((4, 60, 2)), np.zeros((4, 3, 2))]).shape == (4, 63, 2)


def change(recall: float, ndcg: float | None = None, *, p: float = 0.001) -> dict[str, Comparison]:
    """Return the changes of both measures, with one p value."""
    return {
        "recall@10": Comparison(recall, recall, recall, p),
        "ndcg@10": Comparison(recall if ndcg is None else ndcg, recall, recall, p),
    }


def changes(mean: dict[str, Comparison], ours: dict[str, Comparison], **others: Any) -> Changes:
    """Return changes in which no set, no prompts and no stratum lose unless `others` says so."""
    fields: dict[str, Any] = {"sets": {"a": change(0)}, "prompts": {"a": change(0)}, "own": {"": ours}} | others
    return Changes(mean=mean, **fields)


def maxsim_outcome(found: Changes, *, p: float = 0.001, costs: Costs = COSTS, states: Any = "signs") -> MaxSimOutcome:
    """Return an outcome with one p value for both measures."""
    return MaxSimOutcome((), found, {"recall@10": p, "ndcg@10": p}, costs, states)


GOOD = change(0.01)
SLOW = replace(COSTS, computed=400.0)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (maxsim_outcome(changes(GOOD, GOOD)), "adopted"),
        (maxsim_outcome(changes(change(0, 0.01), change(0, 0.005))), "adopted"),
        (maxsim_outcome(changes(change(-0.001, 0.01), GOOD)), "rejected"),
        (maxsim_outcome(changes(change(0.0099), GOOD)), "opt-in"),
        (maxsim_outcome(changes(change(0.0049), GOOD)), "rejected"),
        (maxsim_outcome(changes(GOOD, GOOD), p=0.01), "rejected"),
        (maxsim_outcome(changes(GOOD, change(0.0049))), "opt-in"),
        (maxsim_outcome(changes(GOOD, change(0.01, p=0.05))), "opt-in"),
        (maxsim_outcome(changes(GOOD, change(0.01, -0.001, p=0.5))), "rejected"),
        (maxsim_outcome(changes(GOOD, GOOD, sets={"a": change(-0.0021, p=0.05)})), "opt-in"),
        (maxsim_outcome(changes(GOOD, GOOD, prompts={"a": change(-0.001, p=0.04)})), "rejected"),
        (maxsim_outcome(changes(GOOD, GOOD, own={"": GOOD, "exact": change(-0.1, p=0.04)})), "rejected"),
        (maxsim_outcome(changes(GOOD, GOOD), costs=SLOW), "adopted"),
        (maxsim_outcome(changes(GOOD, GOOD), costs=SLOW, states="exact"), "opt-in"),
        (maxsim_outcome(changes(GOOD, GOOD), costs=replace(COSTS, computed=501.0), states="exact"), "rejected"),
    ],
)
def test_the_verdict_on_maxsim_is_that_of_the_rule(found: MaxSimOutcome, verdict: str) -> None:
    """The gain and its p decide, what our own set says, whether anything loses, and what the states cost."""
    assert found.verdict == verdict


def mmr_outcome(repeats_change: float, facts_change: Comparison, found: Changes, *, p: float = 0.001) -> MmrOutcome:
    """Return an outcome in which three of ten memories are repeats without MMR."""
    return MmrOutcome((), found, 3.0, Comparison(repeats_change, 0, 0, p), p, facts_change)


SAME = changes(change(0), change(0))
KNOWN, UNCHANGED, LOST = Comparison(0.005, 0, 0, 0.04), Comparison(0.0, 0, 0, 1.0), Comparison(-0.001, 0, 0, 0.5)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (mmr_outcome(-1.0, KNOWN, SAME), "adopted"),
        (mmr_outcome(-0.99, KNOWN, SAME), "rejected"),
        (mmr_outcome(-1.0, KNOWN, SAME, p=0.01), "rejected"),
        (mmr_outcome(1.0, KNOWN, SAME), "rejected"),
        (mmr_outcome(-1.0, UNCHANGED, SAME), "opt-in"),
        (mmr_outcome(-1.0, LOST, SAME), "rejected"),
        (mmr_outcome(-1.0, KNOWN, changes(change(0), change(0), sets={"a": change(-0.004, p=0.05)})), "opt-in"),
        (mmr_outcome(-1.0, KNOWN, changes(change(0), change(0), sets={"a": change(-0.001, p=0.04)})), "rejected"),
    ],
)
def test_the_verdict_on_mmr_is_that_of_the_rule(found: MmrOutcome, verdict: str) -> None:
    """Repeats have to fall by a third, no fact may be lost, and nothing else either."""
    assert found.verdict == verdict


def test_a_set_is_judged_by_what_the_others_choose_and_p_counts_every_setting() -> None:
    """Set a would forbid the better setting, which is therefore chosen for it; a wild setting makes p greater."""
    few = [ALONE, replace(ALONE, weight=0.5)]
    sets = [gained("a", 0.03, -0.1, settings=few), gained("homelab", 0.03, 0.2, settings=few)]
    outcome = judge_maxsim(sets, sets, COSTS, seed=0)
    assert [(fold.judged, fold.setting) for fold in outcome.folds] == [("a", 1), ("homelab", 0)]
    assert outcome.changes.sets["a"]["recall@10"].difference == pytest.approx(-0.1)
    assert outcome.changes.mean["recall@10"].difference == pytest.approx((-0.1 + 0.03) / 2)
    assert (outcome.states, set(outcome.changes.own)) == ("exact", {"", "natural"})
    calm = [gained(name, 0.03, 0.03, settings=few) for name in ("a", "homelab")]
    wild = [gained(name, 0.03, -0.3, settings=few) for name in ("a", "homelab")]
    assert judge_maxsim(wild, wild, COSTS, seed=0).p["ndcg@10"] > judge_maxsim(calm, calm, COSTS, seed=0).p["ndcg@10"]


def test_repeats_are_judged_on_our_own_set_by_what_the_others_choose() -> None:
    """The first setting halves the repeats; nothing changes where the others choose nothing."""
    settings = [MmrSetting(0.5, 0.0, 20), MmrSetting(0.9, 0.0, 20)]
    sets = [less_alike(gained(name, 0.0, 0.0, settings=settings), 0.1, 0.0) for name in ("a", "homelab")]
    counted = FactScores(
        np.full(60, 2.0), np.array([[1.0] * 60, [2.0] * 60], dtype=np.float32),
        np.full(60, 0.5), np.full((2, 60), 0.6, dtype=np.float32),
    )  # fmt: skip
    outcome = judge_mmr(sets, sets, counted, seed=0)
    assert (outcome.plain_repeats, outcome.repeats.difference, outcome.verdict) == (2.0, -1.0, "adopted")
    assert outcome.facts.difference == pytest.approx(0.1)
    alike = [less_alike(gained(name, 0.0, 0.0, settings=settings), 0.0, 0.0) for name in ("a", "homelab")]
    assert judge_mmr(alike, alike, counted, seed=0).repeats.difference == 0.0
