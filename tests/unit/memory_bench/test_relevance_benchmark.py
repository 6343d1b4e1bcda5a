"""Relevance is judged on what other families had no part in, by what comes back and by what stays empty."""

import json
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from memory_bench.harness.dataset import Dataset, Memory, Query
from memory_bench.harness.regression import regress
from memory_bench.recall.relevance.judging import Table, fit, judge, out_of_fold
from memory_bench.recall.relevance.measure import without_details, write_relevance
from memory_bench.recall.relevance.observing import Observed, Recalled
from memory_bench.recall.relevance.stores import (
    EVERYDAY,
    FAMILIES,
    LEARNT,
    NEAR_MISS,
    QUESTION,
    SIBLING,
    STRANGER,
    can_be_judged,
    stores,
)
from memory_recall.indexing.usual_cosine import everyday_prompts


def dataset(name: str, users: tuple[str | None, ...] = (None,)) -> Dataset:
    """A set of one memory and two questions for each user, or for nobody in particular."""
    memories = [Memory(number, f"memory of {user}", scope=user) for number, user in enumerate(users)]
    queries = [
        Query(f"{name} {number} {which}", f"{name} {user} {which}?", "all", user, frozenset({number}))
        for number, user in enumerate(users)
        for which in "ab"
    ]
    return Dataset(name, tuple(memories), tuple(queries), 0, "")


SETS = [
    dataset("homelab"),
    dataset("locomo", ("ana", "bo")),
    dataset("2wiki-101"),
    dataset("hotpotqa-train100"),
    dataset("xquad-5", ("en", "de", "es", "ru", "zh")),
]


def test_relevance_is_judged_only_where_every_family_has_a_set() -> None:
    assert can_be_judged(SETS)
    assert not can_be_judged([one for one in SETS if one.name != "locomo"])
    assert can_be_judged([one for one in SETS if one.name != "2wiki-101"])


def test_each_store_is_asked_its_own_questions_and_those_of_other_families() -> None:
    """Another set of the same family asks nothing, and the other conversations are judged apart."""
    found = {one.name: one for one in stores(SETS, ["en"], seed=0)}
    assert list(found) == ["homelab", "locomo, ana", "locomo, bo", "2wiki-101", "hotpotqa-train100", "xquad-5-en"]
    ana = found["locomo, ana"]
    assert (ana.user, ana.words, ana.family) == ("ana", None, "conversations")
    texts = {kind: {one.text for one in ana.asked if one.kind == kind} for kind in (QUESTION, SIBLING, STRANGER)}
    assert texts[QUESTION] == {"locomo ana a?", "locomo ana b?"}
    assert texts[SIBLING] == {"locomo bo a?", "locomo bo b?"}
    assert not any("locomo" in text for text in texts[STRANGER])
    assert {text.split()[0] for text in texts[STRANGER]} == {"homelab", "2wiki-101", "hotpotqa-train100", "xquad-5"}
    wiki = {one.text for one in found["2wiki-101"].asked if one.kind == STRANGER}
    assert not any("hotpot" in text for text in wiki)
    assert found["xquad-5-en"].words is not None


def test_no_everyday_prompt_that_the_usual_cosine_is_found_by_is_judged_or_learnt() -> None:
    (notes, *_) = stores(SETS, ["en"], seed=0)
    by_kind = {kind: [one.text for one in notes.asked if one.kind == kind] for kind in (EVERYDAY, LEARNT, NEAR_MISS)}
    assert {kind: len(texts) for kind, texts in by_kind.items()} == {EVERYDAY: 112, LEARNT: 113, NEAR_MISS: 150}
    assert not {*by_kind[EVERYDAY], *by_kind[LEARNT]} & set(everyday_prompts())
    assert not set(by_kind[EVERYDAY]) & set(by_kind[LEARNT])


def observed(told_apart: dict[str, float]) -> Observed:
    """Memories of four families; what fits is nearer than what does not by what `told_apart` says of the family."""
    drawn = np.random.default_rng(1)
    rows, numbers = [], count()
    for family in dict.fromkeys(FAMILIES.values()):
        for kind in (QUESTION, LEARNT, EVERYDAY, STRANGER):
            for _ in range(60):
                closeness = float(drawn.normal(told_apart[family] if kind == QUESTION else 0.0, 0.05))
                words = float(drawn.uniform())
                rows.append(Recalled(family, family, kind, next(numbers), 0, kind == QUESTION, closeness, words, 0.0))
    asked = {(family, kind): 60 for family in FAMILIES.values() for kind in (QUESTION, LEARNT, EVERYDAY, STRANGER)}
    return Observed(rows, asked, {}, 0.1)


APART = dict.fromkeys(FAMILIES.values(), 0.5)


def test_what_is_far_apart_is_kept_and_left_empty() -> None:
    table = Table(observed(APART))
    figures = judge(table, out_of_fold(table)).figures()
    assert min(figures["worst_family_kept"], figures["worst_family_empty"]) > 0.95
    assert figures["rows_in_vain_per_prompt"] < 0.05


def test_the_weights_of_a_family_come_from_the_others() -> None:
    """A family that differs from all others is judged by what they teach."""
    table = Table(observed(APART | {"notes": 0.05}))
    judged = judge(table, out_of_fold(table))
    assert judged.kept["notes"] < 0.5
    assert min(share for family, share in judged.kept.items() if family != "notes") > 0.9
    assert fit(table, ["conversations"]).intercept < fit(table, ["notes"]).intercept - 1


def test_a_prompt_counts_once_however_many_memories_it_gets_and_a_memory_in_vain_each_time() -> None:
    once = observed(APART)
    first = next(one for one in once.recalled if one.kind == EVERYDAY)
    more = [replace(first, place=place) for place in range(1, 7)]
    table = Table(replace(once, recalled=[*once.recalled, *more]))
    relevance = np.where((table.kind == EVERYDAY) & (table.number == first.asked), 1.0, 0.0)
    judged = judge(table, relevance)
    assert judged.empty[first.family] == pytest.approx(1 - 1 / 60 / 2)
    assert judged.in_vain == pytest.approx(5 / 60 / 2 / 4), "only the first five memories are shown"


def test_perfect_relevance_has_no_reliability_error_and_a_constant_one_has_that_of_a_half() -> None:
    table = Table(observed(APART))
    relevant = table.relevant.astype(float)
    assert judge(table, relevant).reliability_error == 0
    assert judge(table, np.full(len(relevant), 0.9)).reliability_error == pytest.approx(0.4)


def test_an_example_that_counts_twice_is_as_two() -> None:
    drawn = np.random.default_rng(2)
    features, labels = drawn.normal(size=(40, 2)), drawn.integers(0, 2, 40).astype(float)
    twice = regress(np.vstack([features, features]), np.concatenate([labels, labels]))
    counted = regress(features, labels, np.full(40, 2.0))
    assert counted[0] == pytest.approx(twice[0])
    assert counted[1] == pytest.approx(twice[1])


def test_the_report_has_a_table_for_each_part_and_the_last_line_no_details(tmp_path: Path) -> None:
    details = {"by family": {"notes": [0.9, 0.8]}, "as served": {"notes": [0.95, 0.7]}, "reliability": [(0.1, 0.2)]}
    floor = {"kept": 0.9, "second_model": {"kept": 0.8, "details": details}, "details": details}
    write_relevance(floor, tmp_path)
    report = (tmp_path / "relevance.md").read_text()
    assert "| notes | 0.950 | 0.700 |" in report
    assert "second model" in report
    assert (tmp_path / "reliability.png").stat().st_size > 0
    assert json.loads((tmp_path / "relevance.json").read_text())["kept"] == 0.9
    assert without_details(floor) == {"kept": 0.9, "second_model": {"kept": 0.8}}
