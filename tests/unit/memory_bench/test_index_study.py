"""The study of smaller vector indexes: exact rankings, made rows, ranked questions, and the rule of ADR 30."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from memory_bench.harness.dataset import Dataset, Memory, Query
from memory_bench.harness.vectors import EmbeddedSet
from memory_bench.index_study.designs import CANDIDATES, SMALLER, TODAY, Design, Kind, Setting, designs, settings
from memory_bench.index_study.exact import ExactShares, exact_shares, local_dimensionality, shares_kept
from memory_bench.index_study.measure import Cold, Warm
from memory_bench.index_study.quality import DenseLeg, SetQuality, hybrid
from memory_bench.index_study.rankings import candidates, nearest, nearest_by_first_dimensions, nearest_by_signs
from memory_bench.index_study.tables import Study, write
from memory_bench.index_study.texts import sentences
from memory_bench.index_study.vectors import Vectors, made_rows, modelled, widened
from memory_bench.index_study.verdict import Measured, TableResult, Verdict, admissible, best, judge
from memory_bench.latency.synthetic import Synthetic
from memory_bench.recall.evidence import Lexemes, gather
from memory_bench.reference_fusion import fuse
from memory_recall.search.fusion import Fusion

SIGNS = Design("signs")
GOOD = Setting(SIGNS, 200, 200)


def unit(count: int, dimensions: int, seed: int = 0) -> "np.typing.NDArray[np.float32]":
    """Return random vectors of length one."""
    drawn = np.random.default_rng(seed).standard_normal((count, dimensions)).astype(np.float32)
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True), dtype=np.float32)


def measured(
    setting: Setting,
    *,
    recall: float = 0.995,
    p95: float = 5.0,
    size: int = 100,
    cold: tuple[float, float] | None = None,
) -> Measured:
    """Return invented figures of a setting, of which each question took the same time."""
    return Measured(
        setting,
        size,
        1.0,
        Warm(recall, (p95,) * 3, (p95,) * 3, 1000.0),
        None if cold is None else Cold((cold[0],), cold[1]),
    )


def table(*smaller: Measured, name: str = "real", dimensions: int = 384, recall: float = 0.994) -> TableResult:
    """Return a table of vectors with today's index, which takes 5 ms and 100 bytes, and these settings."""
    today = measured(Setting(TODAY, 215), recall=recall, cold=(100.0, 1000.0))
    return TableResult(name, dimensions, 100_000, (today, *smaller))


def quality(change: float = 0.0, *, ranking: str = "dense") -> SetQuality:
    """Return a set on which every kind and number of candidates changes one ranking's recall@10 by `change`."""
    lost = {"dense": 0.5, "hybrid": 0.7}
    lost[ranking] += change
    every = {(kind, count): dict(lost) for kind in SMALLER for count in CANDIDATES}
    return SetQuality("a set", 100, {"dense": 0.5, "hybrid": 0.7}, every)  # type: ignore[arg-type]  # keys are rankings


def test_signs_count_the_dimensions_that_differ_and_zero_is_no_sign() -> None:
    """As `binary_quantize` does, one stands for a number above zero; equally near rows keep their order."""
    rows = np.array([[1, 1, 1, 1], [-1, 1, 1, 1], [-1, -1, 1, 1], [0, 1, 1, 1]], dtype=np.float32)
    assert nearest_by_signs(rows, rows[:1], 4).tolist() == [[0, 1, 3, 2]]
    assert nearest_by_signs(rows, -rows[:1], 4).tolist() == [[2, 1, 3, 0]]


def test_exact_search_is_the_same_in_blocks_and_first_dimensions_are_compared_by_their_own_cosine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A row with short first dimensions of the right direction comes before a longer one of another."""
    rows, asked = unit(70, 8), unit(5, 8, seed=1)
    whole = nearest(rows, asked, 20)
    assert whole.tolist() == np.argsort(-(asked @ rows.T), axis=1)[:, :20].tolist()
    monkeypatch.setattr("memory_bench.index_study.rankings._BLOCK", 30)
    assert nearest(rows, asked, 20).tolist() == whole.tolist()
    rows = np.array([[0.8, 0.6, 0, 0, 0, 0, 0, 0], [0.1, 0, 0, 0, 0, 0, 0, 0.9]], dtype=np.float32)
    assert nearest_by_first_dimensions(rows, np.eye(8, dtype=np.float32)[:1], 2).tolist() == [[1, 0]]


def test_centred_signs_are_those_of_the_differences_from_the_mean() -> None:
    """All rows have the same signs before the mean is subtracted."""
    rows = np.array([[0.9, 0.5], [0.5, 0.9], [0.7, 0.1]], dtype=np.float32)
    asked, mean = np.array([[0.6, 0.95]], dtype=np.float32), rows.mean(axis=0)
    assert candidates("signs", rows, asked, 1, mean).tolist() == [[0]]
    assert candidates("centred signs", rows, asked, 1, mean).tolist() == [[1]]


def test_a_share_counts_the_true_neighbours_among_the_first_candidates() -> None:
    """Candidates beyond the number do not count."""
    true, found = np.arange(50)[None, :], np.concatenate([np.arange(0, 50, 2), np.arange(60, 100)])[None, :]
    assert shares_kept(found, true, [10, 60]) == [0.2, 0.5]


def test_a_kind_is_possible_where_an_exact_search_keeps_enough() -> None:
    """Rows that differ in their first quarter alone are told apart by it, and not by their signs."""
    rows = np.full((1_000, 16), 0.1, dtype=np.float32)
    rows[:, :2] += np.random.default_rng(0).random((1_000, 2))
    vectors = Vectors("v", rows.astype(np.float16), rows[:40].astype(np.float16), centred=True)
    assert exact_shares(vectors, "v").possible == ("first dimensions",)


def test_made_rows_lie_as_far_from_their_text_as_the_difference_over_the_root_of_two() -> None:
    """Texts come first, each as it is; made rows have length one, and are the same at every call."""
    texts = unit(60, 16)
    vectors = widened(texts, texts[:5], 200)
    assert vectors.rows.shape == (200, 16)
    assert np.array_equal(vectors.rows[:60], texts.astype(np.float16))
    made = made_rows(texts, 140)
    assert np.array_equal(vectors.rows[60:], made.astype(np.float16))
    assert np.linalg.norm(made, axis=1) == pytest.approx(np.ones(140), abs=1e-5)
    differences = [(texts[one] - texts[other]) / np.sqrt(2) for one in range(60) for other in range(60)]
    possible = (texts[:, None, :] + np.array(differences)[None, :, :]).reshape(-1, 16)
    possible /= np.linalg.norm(possible, axis=1, keepdims=True)
    assert (made @ possible.T).max(axis=1) == pytest.approx(np.ones(140), abs=1e-4)


def test_modelled_vectors_are_turned_and_keep_their_cosines() -> None:
    """After the rotation no dimension has more variance than others by much; before it the first has most."""
    vectors = modelled(64, 5_000, 3, lambda _: None)
    before = Synthetic().vectors(0)[:, :64]
    before /= np.linalg.norm(before, axis=1, keepdims=True)
    assert vectors.rows[:50] @ vectors.rows[:50].T == pytest.approx(before[:50] @ before[:50].T, abs=0.01)
    assert vectors.rows.astype(np.float32).var(axis=0).max() * 5 < before.var(axis=0).max()
    with pytest.raises(ValueError, match="multiple of 5000"):
        modelled(64, 5_001, 3, lambda _: None)


def test_the_local_dimensionality_of_a_plane_is_two() -> None:
    """The plane lies in a space of eight dimensions, so distances have a scale but no sphere bends them."""
    plane = np.zeros((4_000, 8), dtype=np.float32)
    plane[:, :2] = np.random.default_rng(0).random((4_000, 2)) * 0.1
    plane[:, 7] = 1
    plane /= np.linalg.norm(plane, axis=1, keepdims=True)
    assert local_dimensionality(plane) == pytest.approx(2, abs=0.3)


def test_sentences_are_taken_from_one_text_after_the_other() -> None:
    """A text of one sentence gives none, nor does one that is short; none is taken twice."""
    first, second = "The first sentence is long enough.", "The second sentence is long enough."
    other = "Another text has a sentence as well."
    given = [f"{first} {second}", "One sentence alone is a memory already.", f"{other} No. {second}"]
    assert sentences(given) == [first, other, second]
    assert sentences([]) == []


def test_a_leg_with_the_same_fifty_gives_the_hybrid_ranking_of_the_reference() -> None:
    """With what the exact dense leg finds, the order is that of all candidates of the evidence."""
    chance = np.random.default_rng(2)
    words = [tuple(f"w{number}" for number in chance.integers(0, 40, 6)) for _ in range(120)]
    memories = tuple(
        Memory(place + 1, " ".join(one), importance=float(chance.random())) for place, one in enumerate(words)
    )
    queries = tuple(Query(f"q{n}", "", "all", None, frozenset({1})) for n in range(8))
    dataset = Dataset("d", memories, queries, 0, "")
    embedded = EmbeddedSet("m", unit(120, 8), unit(8, 8, seed=3))
    found = gather(dataset, Lexemes(tuple(words), tuple(words[:8])), embedded)
    importance = {one.id: one.importance for one in memories}
    for number, one in enumerate(found):
        cosines = dict(enumerate((embedded.queries[number] @ embedded.memories.T).tolist(), start=1))
        leg = DenseLeg([(memory, cosines[memory]) for memory in one.dense], cosines)
        wanted = [each.id for each in fuse(one.candidates, Fusion(), max_lexical_score=one.max_lexical_score)]
        assert hybrid(one, leg, Fusion(), importance) == wanted


def test_every_smaller_design_is_searched_with_all_candidates_and_today_as_a_recall_searches() -> None:
    """`ef_search` is at most pgvector's limit, and never below the candidates."""
    assert [str(one) for one in settings(TODAY, 100_000)] == ["halves, m 24, ef 215"]
    found = settings(SIGNS, 100_000)
    assert [(one.candidates, one.ef_search) for one in found[-3:]] == [(400, 800), (800, 800), (800, 1000)]
    assert {one.kind for one in designs(centred=True)} - {one.kind for one in designs(centred=False)} == {
        "centred signs"
    }


@pytest.mark.parametrize(
    ("recall", "today", "sets", "allowed"),
    [
        (0.99, 0.992, [quality()], True),
        (0.9899, 0.99, [quality()], False),
        (0.994, 0.9961, [quality()], False),
        (0.995, 0.994, [quality(-0.003)], True),
        (0.995, 0.994, [quality(), quality(-0.0031)], False),
        (0.995, 0.994, [quality(-0.0031, ranking="hybrid")], False),
    ],
    ids=["at the bound", "below .99", "below today's", "quality at the bound", "one set loses", "hybrid loses"],
)
def test_what_is_admissible(recall: float, today: float, sets: list[SetQuality], allowed: bool) -> None:
    """The bounds themselves are allowed."""
    found = table(measured(GOOD, recall=recall), recall=today)
    assert admissible(found.measured[1], found.today, sets) is allowed


def test_the_best_is_the_quickest_admissible_setting_or_else_the_one_that_finds_most() -> None:
    """A quicker setting that finds too little is not chosen, unless none finds enough."""
    quick, slow = measured(replace(GOOD, candidates=100), recall=0.9, p95=1), measured(GOOD, p95=4)
    assert best(table(quick, slow), "signs", [quality()]) is slow
    low = measured(GOOD, recall=0.95, p95=9)
    assert best(table(quick, low), "signs", [quality()]) is low
    assert best(table(quick), "first dimensions", [quality()]) is None


def test_a_table_without_any_index_rejects_every_kind() -> None:
    """Nothing is built where an exact search has ruled out all kinds."""
    ruled_out = TableResult("real", 384, 100_000, ())
    assert judge([ruled_out], [quality()])[384, 100_000] == dict.fromkeys(SMALLER, "rejected")


@pytest.mark.parametrize(
    ("one", "verdict"),
    [
        (measured(GOOD, p95=5.0, size=50), "adopted"),
        (measured(GOOD, p95=5.0, size=51), "rejected"),
        (measured(GOOD, p95=5.01, size=10), "rejected"),
        (measured(GOOD, p95=5.5, size=99, cold=(50.0, 500.0)), "adopted"),
        (measured(GOOD, p95=5.51, size=10, cold=(5.0, 50.0)), "rejected"),
        (measured(GOOD, p95=5.5, size=10, cold=(51.0, 500.0)), "rejected"),
        (measured(GOOD, p95=5.5, size=10, cold=(50.0, 501.0)), "rejected"),
        (measured(GOOD, p95=1.0, size=10, recall=0.98), "rejected"),
    ],
    ids=[
        "small",
        "too large",
        "too slow",
        "cold",
        "slow though cold pays",
        "cold time",
        "cold bytes",
        "finds too little",
    ],
)
def test_what_is_adopted(one: Measured, verdict: Verdict) -> None:
    """A kind pays by its size, or cold; the bounds themselves are allowed."""
    assert judge([table(one)], [quality()])[384, 100_000]["signs"] == verdict


def test_all_vectors_of_a_number_of_dimensions_must_agree_to_adopt() -> None:
    """Centred signs of modelled vectors are their signs, since their mean is at zero."""
    good, bad = measured(GOOD, size=10), measured(GOOD, size=90)
    centred = measured(replace(GOOD, design=Design("centred signs")), size=10)
    found = judge([table(good, centred), table(good, name="modelled")], [quality()])
    assert found[384, 100_000] == {"signs": "adopted", "centred signs": "adopted", "first dimensions": "rejected"}
    found = judge([table(good, centred), table(bad, name="modelled")], [quality()])
    assert found[384, 100_000] == dict.fromkeys(SMALLER, "rejected")


@pytest.mark.parametrize(
    ("real", "modelled_at_384", "at_1024", "verdict"),
    [(10, 10, 10, "adopted"), (10, 10, 90, "rejected"), (90, 90, 10, "adopted"), (90, 10, 10, "not judged")],
    ids=["all pay", "not at 1,024", "not at 384", "modelled vectors mislead"],
)
def test_modelled_vectors_alone_count_where_they_agree_with_real_ones(
    real: int, modelled_at_384: int, at_1024: int, verdict: Verdict
) -> None:
    """No model of 1,024 dimensions was measured, so 384 tell whether modelled vectors say what real ones do."""
    tables = [
        table(measured(GOOD, size=real)),
        table(measured(GOOD, size=modelled_at_384), name="modelled"),
        table(measured(GOOD, size=at_1024), name="modelled", dimensions=1024),
    ]
    assert judge(tables, [quality()])[1024, 100_000]["signs"] == verdict
    assert judge(tables[2:], [quality()])[1024, 100_000]["signs"] == "not judged"


def test_the_report_has_every_verdict_and_setting(tmp_path: Path) -> None:
    """Report, figures and chart are written, and the figures are shares of today's."""
    kind: Kind = "signs"
    found = table(measured(GOOD, p95=2.5, size=25, cold=(10.0, 100.0)))
    exact = [ExactShares("real", 384, 10, 9.5, {kind: [0.9, 0.95, 0.99, 1.0]})]
    study = Study("a model", 10, [found], exact, [quality(-0.001)], 1.0)
    write(study, tmp_path)
    assert study.figures()["kept_by_exact_search"] == {"real 384d 10": {kind: 1.0}}
    assert study.figures()["real 384d 100000"] == {
        kind: {
            "setting": str(GOOD), "admissible": True, "recall": 0.995, "size": 0.25, "p95_warm": 0.5, "p95_cold": 0.1,
            "bytes_cold": 0.1,
        }
    }  # fmt: skip
    report = (tmp_path / "report.md").read_text()
    assert "| 384 | 100,000 | adopted | rejected | rejected |" in report
    assert f"| {GOOD} | yes | 0.9950 |" in report
