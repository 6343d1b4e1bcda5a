"""The benchmark of the times that memories name, on invented data that is small enough to check by hand."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from memory_bench.harness.dataset import Dataset, Memory, Query
from memory_bench.harness.scoring import Scorer
from memory_bench.harness.vectors import EmbeddedSet
from memory_bench.recall.evidence import Lexemes, gather
from memory_bench.recall.named_times import compare_boost
from memory_bench.studies.measured_sets import MeasuredSet
from memory_bench.studies.questions import LabelledSet
from memory_bench.times.boosting import score_times
from memory_bench.times.command import study_sets
from memory_bench.times.coverage import cover
from memory_bench.times.expressions import periods_of
from memory_bench.times.memory_times import IMPORTED, read_times, summarise
from memory_bench.times.settings import TimeSetting, all_settings, matching
from memory_bench.times.tables import write
from memory_recall import Fusion
from memory_recall.search.period import Period

NOW = datetime(2023, 11, 15, 10, 30, tzinfo=UTC)  # a Wednesday
PLAIN = TimeSetting("query's", "overlap", "greater", 1.0)


def period(start: str, days: int = 1) -> Period:
    """Return the period of so many days that begins at midnight UTC of a date."""
    begin = datetime.fromisoformat(start).replace(tzinfo=UTC)
    return Period(begin, begin + timedelta(days=days))


@pytest.mark.parametrize(
    ("text", "start", "days"),
    [
        ("we move tomorrow", "2023-11-16", 1),
        ("cooked this  evening", "2023-11-15", 1),
        ("it broke last  night", "2023-11-14", 1),
        ("next month I retire", "2023-12-01", 31),
        ("next week", "2023-11-20", 7),
        ("last weekend", "2023-11-11", 2),
        ("this weekend", "2023-11-18", 2),
        ("next weekend", "2023-11-25", 2),
        ("last summer in Rome", "2023-06-01", 92),
        ("last winter", "2022-12-01", 90),
        ("last autumn", "2022-09-01", 91),
        ("this fall", "2023-09-01", 91),
        ("next spring", "2024-03-01", 92),
        ("on Friday she left", "2023-11-10", 1),
        ("on Wednesday she left", "2023-11-08", 1),
        ("this Monday", "2023-11-13", 1),
        ("next Wednesday", "2023-11-22", 1),
        ("a couple of weeks ago", "2023-10-30", 7),
        ("A few days ago", "2023-11-10", 4),
        ("several years ago", "2016-01-01", 5 * 365 + 2),
        ("in three months", "2024-02-01", 29),
        ("in 10 days", "2023-11-25", 1),
        ("in a year", "2024-01-01", 366),
    ],
)
def test_what_texts_say_and_queries_do_not_is_found_by_the_finder_of_texts_alone(
    text: str, start: str, days: int
) -> None:
    assert periods_of(text, NOW, "text's") == (period(start, days),)
    assert periods_of(text, NOW, "query's") == ()


@pytest.mark.parametrize("finder", ["query's", "text's"])
def test_every_period_of_a_text_is_found_once(finder: str) -> None:
    """Two days are two periods, and a day that is named twice is one."""
    found = periods_of("yesterday, on 3 May 2020 and on 14 November 2023", NOW, finder)  # type: ignore[arg-type]
    assert found == (period("2023-11-14"), period("2020-05-03"))


@pytest.mark.parametrize("text", ["in 999 years", "on Mars", "the next one", "fall", "last springs"])
def test_a_text_without_a_time_of_the_calendar_names_no_period(text: str) -> None:
    created = datetime(9990, 1, 1, tzinfo=UTC)
    assert periods_of(text, created, "text's") == ()


def test_a_stamp_is_the_time_of_creation_and_names_nothing() -> None:
    """A memory of a set without times was imported; `yesterday` is seen from the time of creation."""
    rows = [
        Memory(1, "[1:56 pm on 8 May, 2023] we moved yesterday"),
        Memory(2, "[1:56 pm on 8 May, 2023] hello"),
        Memory(3, "yesterday", created_at=NOW),
        Memory(4, "yesterday"),
    ]
    times = read_times(rows)
    assert times.created[1] == times.created[2] == datetime(2023, 5, 8, 13, 56, tzinfo=UTC)
    assert (times.created[3], times.created[4]) == (NOW, IMPORTED)
    found = times.periods["query's"]
    assert found == {1: (period("2023-05-07"),), 2: (), 3: (period("2023-11-14"),), 4: (period("2025-12-31"),)}
    counted = summarise(times, "query's")
    assert (counted.memories, counted.naming, counted.periods) == (4, 3, 0.75)
    assert counted.of_99 >= counted.mean > 0


def test_periods_match_by_a_shared_moment_by_their_distance_or_by_the_share_of_the_memory_s() -> None:
    """Two days that touch share nothing; a day within a year is the whole of the day and little of the year."""
    day, next_day, later = period("2023-05-08"), period("2023-05-09"), period("2023-05-10")
    year = period("2023-01-01", 365)
    assert [matching("overlap", day, one) for one in (day, next_day, year)] == [1.0, 0.0, 1.0]
    assert [matching("fade", day, one) for one in (day, next_day, later, year)] == [1.0, 1.0, 0.5, 1.0]
    assert matching("fade", day, period("2023-05-30")) == 0.0
    assert matching("share", year, day) == 1.0
    assert matching("share", day, year) == pytest.approx(1 / 365)
    assert matching("share", day, next_day) == 0.0


def test_match_joins_closeness_in_three_ways() -> None:
    """The second memory names no time, so that a mixture leaves its closeness."""
    closeness, match, names = np.array([0.2, 0.8]), np.array([1.0, 0.0]), np.array([1.0, 0.0])

    def combined(setting: TimeSetting) -> list[float]:
        return setting.combined(closeness, match, names=names).tolist()

    assert combined(PLAIN) == [1.0, 0.8]
    assert combined(replace(PLAIN, weight=0.1)) == [0.2, 0.8]
    assert combined(replace(PLAIN, combination="sum", weight=0.5)) == pytest.approx([0.7, 0.8])
    assert combined(replace(PLAIN, combination="mixture")) == [1.0, 0.8]
    assert combined(replace(PLAIN, combination="mixture", weight=0.5)) == pytest.approx([0.6, 0.8])


def test_all_settings_of_the_decision_record_are_compared() -> None:
    assert len(set(all_settings())) == len(all_settings()) == 36
    assert len({one.order for one in all_settings()}) == 36


def labelled(name: str = "locomo", *scopes: str) -> LabelledSet:
    """Return a set in which each scope has 20 memories and two questions with the twelfth memory by meaning as answer.

    It was created in May, as all others, and says that it happened in March. The first question names March.
    """
    rows, queries = [], []
    for scope in scopes or ("x",):
        first = len(rows) + 1
        texts = [f"[1:56 pm on {number} May, 2023] soup" for number in range(1, 21)]
        texts[11] += " on 3 March, 2023"
        rows += [Memory(first + place, text, scope=scope) for place, text in enumerate(texts)]
        wanted = frozenset({first + 11})
        queries += [
            Query(f"{scope} {text}", text, "all", scope, wanted) for text in ("which soup on 3 March, 2023", "which")
        ]
    angles = np.tile(np.linspace(0.1, 0.6, 20), len(rows) // 20)
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    asked = np.tile(np.eye(1, 2, dtype=np.float32), (len(queries), 1))
    dataset = Dataset(name, tuple(rows), tuple(queries), 0, "")
    lexemes = Lexemes((("soup",),) * len(rows), (("which",),) * len(queries))
    embedded = EmbeddedSet("m", vectors, asked)
    return LabelledSet(dataset, gather(dataset, lexemes, embedded), embedded, Fusion(importance=False))


def test_a_memory_that_names_the_question_s_period_comes_up_and_other_questions_stay_as_they_are() -> None:
    one = labelled()
    scores = score_times(one, read_times(one.dataset.memories), [PLAIN, replace(PLAIN, weight=0.0)])
    assert scores.named.tolist() == [True, False]
    assert scores.unboosted[:, 0].tolist() == scores.plain[:, 0].tolist() == [0.0, 0.0]
    assert scores.scores[:, :, 0].tolist() == [[1.0, 0.0], [0.0, 0.0]]
    assert scores.only(scores.named).gains[:, :, 0].tolist() == [[1.0], [0.0]]


def test_the_baseline_is_the_boost_by_times_of_creation() -> None:
    """Its scores are those of the recall benchmark, and those of the harness without a boost."""
    one = labelled()
    asked = tuple(
        replace(query, text="what on 12 May, 2023", relevant=frozenset({12})) for query in one.dataset.queries
    )
    evidence = [replace(each, query=query) for each, query in zip(one.evidence, asked, strict=True)]
    one = replace(one, dataset=replace(one.dataset, queries=asked), evidence=evidence)
    expected = compare_boost(one.dataset.memories, evidence, seed=0)
    assert expected is not None
    scores = score_times(one, read_times(one.dataset.memories), [replace(PLAIN, weight=0.0)])
    np.testing.assert_allclose(scores.plain.T, expected.boosted)
    np.testing.assert_allclose(scores.scores[0].T, expected.boosted, rtol=1e-6)
    np.testing.assert_allclose(scores.unboosted.T, expected.plain)
    (plain, _) = Scorer(asked).score([list(range(1, 11))] * 2)
    assert scores.unboosted[0].tolist() == [plain["recall@10"], plain["ndcg@10"]]


def test_coverage_tells_which_relevant_memories_name_the_period_and_which_are_left_to_be_gained() -> None:
    """The one answer is a candidate, not among the ten, and names a period far from its time of creation."""
    one = labelled()
    found = cover(one, read_times(one.dataset.memories))
    assert (found.questions, found.beyond) == (1, 0)
    assert (found.relevant.count, found.relevant.created, found.relevant.close) == (1, 0, 0)
    assert found.relevant.named == found.relevant.named_alone == {"query's": 1, "text's": 1}
    assert (found.irrelevant.count, found.irrelevant.named["text's"]) == (19, 0)
    assert found.left == found.relevant


def test_what_was_created_close_to_the_period_and_is_among_the_ten_is_not_left_to_be_gained() -> None:
    """The answer says a day on which it was created, so that the boost by creation has brought it up."""
    one = labelled()
    query = replace(one.dataset.queries[0], text="which soup on 12 May, 2023")
    rows = [replace(row, content=row.content.replace("3 March", "12 May")) for row in one.dataset.memories]
    dataset = replace(one.dataset, memories=tuple(rows), queries=(query,))
    one = replace(one, dataset=dataset, evidence=[replace(one.evidence[0], query=query)])
    found = cover(one, read_times(rows))
    assert (found.relevant.created, found.relevant.named["query's"]) == (1, 1)
    assert found.relevant.named_alone == {"query's": 0, "text's": 0}
    assert found.left.count == 0


def test_the_report_opens_with_the_verdict_and_has_every_setting(tmp_path: Path) -> None:
    """Four conversations with one question each that names a time are too few for a p below .05."""
    locomo, own = labelled("locomo", "a", "b", "c", "d"), labelled("homelab")
    study = study_sets([MeasuredSet(locomo, locomo), MeasuredSet(own, own)], seed=0)
    assert study.outcome.named["recall@10"].difference == 1.0
    write(study, tmp_path, model="m", seed=0)
    report = (tmp_path / "report.md").read_text()
    assert report.startswith("# Times that a memory's text names: rejected\n")
    assert report.count("\n## ") == 6
    assert all(f"| {one} |" in report for one in all_settings())
    kept = json.loads((tmp_path / "summary.json").read_text())
    assert kept["times"]["verdict"] == "rejected"
    assert kept["chosen"] == dict.fromkeys(("first half", "second half"), kept["shipped"])
