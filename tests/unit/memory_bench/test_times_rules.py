"""What the rule of ADR 33 makes of invented figures."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from memory_bench.__main__ import app
from memory_bench.studies.gains import compare_gains
from memory_bench.times.boosting import TimeScores
from memory_bench.times.choice import choose, folds, halves, out_of_fold
from memory_bench.times.memory_times import Capture
from memory_bench.times.settings import TimeSetting
from memory_bench.times.verdict import Outcome, judge

CHEAP = TimeSetting("query's", "share", "greater", 0.5)
DEAR = TimeSetting("text's", "share", "greater", 0.5)
CAPTURE = Capture(memories=100, naming=20, periods=0.3, mean=0.5, of_99=5.0)
CAPTURES = {"locomo": {"query's": CAPTURE, "text's": CAPTURE}}
SCOPES = ("a", "b", "c", "d")


def scored(name: str, *gains: Sequence[float], count: int = 30) -> TimeScores:
    """Return a set of four scopes of which `gains` has, for each setting, what each scope's questions gain.

    Half of the questions name a time. Two in three of these gain 1.5 times as much, and the others nothing.
    """
    searched = tuple(scope for scope in SCOPES for _ in range(count))
    named = np.tile([True, False], len(searched) // 2)
    pattern = np.tile(np.repeat([1.5, 1.5, 0.0], 2), len(searched) // 6) * named
    change = np.stack([np.repeat(one, count) for one in gains]) * pattern
    plain = np.full((len(searched), 2), 0.4)
    scores = (plain + np.repeat(change[:, :, None], 2, axis=2)).astype(np.float32)
    settings = (CHEAP, DEAR)[: len(gains)]
    return TimeScores(name, ("all",) * len(searched), settings, plain, scores, plain, named, searched)


def everywhere(name: str, *gains: float, count: int = 30) -> TimeScores:
    """Return a set all of whose scopes gain the same in each setting."""
    return scored(name, *([gain] * len(SCOPES) for gain in gains), count=count)


def test_conversations_are_dealt_in_turn() -> None:
    first, second = halves(["b", "b", "a", "c", "d"])
    assert first.tolist() == [True, True, False, True, False]
    assert second.tolist() == [False, False, True, False, True]


def test_of_settings_that_gain_almost_the_same_the_preferred_one_is_chosen() -> None:
    """What loses in prompts is not admissible, and without a gain nothing is chosen."""
    none = everywhere("locomo", 0.0, 0.0)
    assert choose(everywhere("locomo", 0.03, 0.0308), none) == (0, 2)
    assert choose(everywhere("locomo", 0.03, 0.0312), none) == (1, 2)
    assert choose(everywhere("locomo", 0.03, 0.05), everywhere("locomo", 0.0, -0.01)) == (0, 1)
    assert choose(everywhere("locomo", -0.001, -0.002), none) == (None, 2)


def test_each_half_is_judged_by_what_the_other_half_chooses() -> None:
    """Scopes a and c gain by the first setting, b and d by the second: what each half would choose hurts the other."""
    one, none = scored("locomo", [0.1, -0.1, 0.1, -0.1], [-0.1, 0.1, -0.1, 0.1]), everywhere("locomo", 0.0, 0.0)
    chosen = folds(one, none)
    assert [(fold.judged, fold.setting) for fold in chosen] == [("first half", 1), ("second half", 0)]
    assert out_of_fold(one, chosen)[one.named].mean(axis=0) == pytest.approx([-0.1, -0.1])


def judged(*others: TimeScores, gain: float = 0.03, prompts: float = 0.0, taken: Capture = CAPTURE) -> Outcome:
    """Judge one setting with this gain on LoCoMo, and what it does on the other sets."""
    asked = [everywhere("locomo", prompts), *(everywhere(one.name, 0.0) for one in others)]
    return judge([everywhere("locomo", gain), *others], asked, {"locomo": {"query's": taken, "text's": taken}}, seed=0)


def test_a_gain_without_a_loss_is_adopted() -> None:
    found = judged(everywhere("homelab", 0.01))
    assert (found.verdict, found.questions, found.shipped) == ("adopted", 60, 0)
    assert found.figures()["recall@10_gain"] == pytest.approx(0.03)
    assert set(found.kept) == {"locomo", "locomo, prompts", "homelab", "homelab, prompts", "homelab, naming a time"}


@pytest.mark.parametrize(
    "found",
    [
        judged(gain=0.009),
        judged(everywhere("homelab", -0.006)),
        judged(everywhere("homelab", -0.0018)),
        judged(taken=replace(CAPTURE, mean=2.1)),
        judged(taken=replace(CAPTURE, of_99=26.0)),
        judged(taken=replace(CAPTURE, periods=1.1)),
    ],
    ids=["gain", "loss", "significant loss of those that name a time", "mean time", "99th time", "periods"],
)
def test_too_small_a_gain_any_loss_and_too_great_a_cost_are_rejected(found: Outcome) -> None:
    assert found.verdict == "rejected"


def test_a_gain_that_chance_explains_or_that_costs_ndcg_is_rejected() -> None:
    found = judged(everywhere("homelab", 0.0))
    assert replace(found, p=0.05).verdict == "rejected"
    lower = {**found.named, "ndcg@10": replace(found.named["ndcg@10"], difference=-0.001)}
    assert replace(found, named=lower).verdict == "rejected"
    losing = compare_gains(np.array([[-0.15, 0.0], *([[0.0, 0.0]] * 49)]), seed=0)  # of one question, so p is 1
    assert replace(found, kept={**found.kept, "locomo, prompts": losing}).verdict == "rejected"


def test_few_questions_that_name_a_time_do_not_count_by_themselves() -> None:
    """Of less than 20 questions, one is more than the bound."""
    assert "small, naming a time" not in judged(everywhere("small", 0.0, count=6)).kept


def test_without_a_setting_that_gains_nothing_is_changed_and_nothing_adopted() -> None:
    found = judged(everywhere("homelab", 0.5), gain=-0.001)
    assert (found.shipped, found.verdict, found.captures) == (None, "rejected", {})
    assert all(one["recall@10"].difference == 0 for one in found.kept.values())


def test_a_directory_without_locomo_is_refused(tmp_path: Path) -> None:
    """Before anything is measured, the message names the set that is missing and where it was looked for."""
    refused = CliRunner().invoke(app, ["times", str(tmp_path)])
    assert refused.exit_code == 1
    assert f"no set locomo in {tmp_path}" in " ".join(refused.output.split())
