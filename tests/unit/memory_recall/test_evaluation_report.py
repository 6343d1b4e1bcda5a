"""The page that `memory evaluate --report` writes."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from memory_recall.evaluation import measures
from memory_recall.evaluation.evaluate import Outcome, Question
from memory_recall.evaluation.report import report_page
from memory_recall.evaluation.significance import interval_of_mean
from memory_recall.search.query import Mode
from memory_recall.search.sql.visibility import EVERYONE

MODES: list[Mode] = ["lexical", "dense", "hybrid"]
STRATUM = "<script>alert('x')</script>"


def outcomes() -> list[Outcome]:
    """Forty questions of two strata: hybrid answers all, dense every second one, lexical none."""
    found = []
    for number in range(40):
        stratum = STRATUM if number % 4 else "exact"
        question = Question(f"q{number}", "a secret question", stratum, EVERYONE, frozenset({1}))
        ranked: dict[Mode, list[int]] = {"lexical": [2], "dense": [1] if number % 2 else [2], "hybrid": [1]}
        found += [Outcome(question, mode, measures.score(ranked[mode], question.relevant)) for mode in MODES]
    return found


class Names(HTMLParser):
    """Every tag and attribute of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_the_page_loads_nothing_runs_nothing_and_quotes_no_question() -> None:
    """Even where a stratum is named as if it were markup."""
    page = report_page(outcomes(), MODES)
    names = Names(page)
    assert not names.tags & {"script", "link", "img", "iframe", "object", "image", "use"}
    assert not names.attributes & {"src", "href", "xlink:href", "onload"}
    assert "default-src 'none'" in page
    assert "://" not in page
    assert "secret" not in page


def test_every_stratum_and_mode_has_its_mean_and_its_interval_in_a_plot() -> None:
    """The dots lie where the means are: 0, the middle, and 1 of an axis that is 430 pixels wide."""
    page = report_page(outcomes(), MODES)
    plots = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(plots) == 2 * len(measures.MEASURES)
    dots = [float(x) for x in re.findall(r'<circle class="\w+" cx="([\d.]+)"', plots[0])]
    assert len(dots) == 3 * len(MODES)
    assert dots[:3] == [300, 515, 730]
    assert "all questions (40): dense" in page
    assert "exact (10): hybrid - lexical" in page


def test_fewer_than_ten_questions_have_no_interval() -> None:
    """The bootstrap of five equal scores has the width 0, as if a sixth could not differ."""
    page = report_page(outcomes()[: 5 * len(MODES)], MODES)
    assert "too few questions" in page
    assert not re.search(r"<td>[-0-9.]+ to [-0-9.]+</td>", page)
    assert not re.search(r'<line class="(lexical|dense|hybrid)"', page)


def test_differences_have_the_p_of_a_paired_test() -> None:
    page = report_page(outcomes(), MODES)
    assert re.search(
        r"all questions \(40\): hybrid - dense</td><td>0\.500</td><td>0\.\d+ to 0\.\d+</td><td>&lt; 0\.001<", page
    )


def test_one_mode_has_nothing_to_be_compared_with() -> None:
    page = report_page([one for one in outcomes() if one.mode == "lexical"], ["lexical"])
    assert page.count("<svg") == len(measures.MEASURES)


def test_the_interval_of_a_mean_is_about_two_standard_errors_wide_to_each_side() -> None:
    """Of 400 scores with a standard deviation of a quarter."""
    scores = np.random.default_rng(1).normal(0.5, 0.25, 400)
    low, high = interval_of_mean(scores.tolist())
    error = float(scores.std()) / 20
    assert (low, high) == pytest.approx((scores.mean() - 1.96 * error, scores.mean() + 1.96 * error), abs=error / 5)
    assert interval_of_mean([1.0] * 9) == (1.0, 1.0)
