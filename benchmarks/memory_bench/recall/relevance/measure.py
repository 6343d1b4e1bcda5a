"""Measures relevance with the model that it was fitted with, with a second one, and with a multilingual one."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from memory_bench.harness.dataset import Dataset
from memory_bench.recall.languages import CONFIGURATIONS
from memory_bench.recall.relevance.judging import Judged, Table, Weights, fit, judge, out_of_fold
from memory_bench.recall.relevance.observing import observe
from memory_bench.recall.relevance.stores import FAMILIES, LANGUAGES, NOTES, stores
from memory_bench.report import chart, markdown_table, write_json
from memory_recall.search.relevance import LEVELS

Floor = dict[str, Any]
"""The figures of the benchmark's last line, and `details`, what the report shows beside them."""


def measure_fitted(sets: Sequence[Dataset], url: str, *, seed: int) -> Floor:
    """Measure with the model that the weights are fitted with: by weights of other families, and by those served.

    The sets hold no adversarial questions of LoCoMo, so that their figure is None.
    """
    observed = observe(stores(sets, ["en"], seed=seed), url)
    table = Table(observed)
    families = list(dict.fromkeys(FAMILIES.values()))
    judged = judge(table, out_of_fold(table))
    served = judge(table, table.served)
    words = judge(table, out_of_fold(table, words_alone=True), by_words=True)
    return {
        "families": len(families),
        **judged.figures(),
        "adversarial_empty": None,
        "ms": round(observed.milliseconds, 3),
        "as_served": served.figures(),
        "words_alone": words.figures(),
        "details": {
            "by family": _by_family(judged),
            "as served": _by_family(served),
            "words alone": _by_family(words),
            "reliability": judged.reliability,
            "usual cosines": observed.usual_cosines,
            "weights": _spelt(fit(table, families)),
            "weights of words alone": _spelt(fit(table, families, words_alone=True)),
        },
    }


def measure_other(sets: Sequence[Dataset], url: str, *, seed: int) -> Floor:
    """Measure with a model that took no part in any fit, by the weights as they are served."""
    observed = observe(stores(sets, ["en"], seed=seed), url)
    return _as_served(Table(observed), observed.usual_cosines)


def measure_all_languages(sets: Sequence[Dataset], url: str, *, seed: int) -> Floor:
    """Measure with a multilingual model, by the weights as they are served, over the notes and all languages."""
    every = stores(sets, list(CONFIGURATIONS), seed=seed)
    observed = observe([one for one in every if one.family in {NOTES, LANGUAGES}], url)
    return _as_served(Table(observed), observed.usual_cosines)


def _as_served(table: Table, usual_cosines: Mapping[str, float]) -> Floor:
    judged = judge(table, table.served)
    return {**judged.figures(), "details": {"by family": _by_family(judged), "usual cosines": usual_cosines}}


def write_relevance(floor: Floor, directory: Path) -> None:
    """Write the report of relevance, a plot of how reliable it is, and the figures as JSON."""
    directory.mkdir(parents=True, exist_ok=True)
    write_json(directory / "relevance.json", floor)
    with chart(directory / "reliability.png", size=(5.0, 4.0)) as axes:
        axes.plot([0, 1], [0, 1], color="0.8")
        axes.plot(*zip(*floor["details"]["reliability"], strict=True), marker="o")
        axes.set(xlabel="relevance", ylabel="share of relevant memories", xlim=(0, 1), ylim=(0, 1))
    (directory / "relevance.md").write_text("\n".join(_sections(floor)), encoding="utf-8")


def without_details(floor: Floor) -> Floor:
    """Return the figures of the last line alone."""
    return {
        name: without_details(value) if isinstance(value, dict) else value
        for name, value in floor.items()
        if name != "details"
    }


def _sections(floor: Floor) -> Iterator[str]:
    yield f"# Relevance at the level `likely` ({LEVELS['likely']})\n"
    for title, part in (("out of fold", floor), ("second model", "second_model"), ("multilingual", "multilingual")):
        found = floor.get(part) if isinstance(part, str) else part
        if found is None:
            continue
        for name, families in found["details"].items():
            if name not in {"by family", "as served", "words alone"}:
                continue
            shares = [[family, *(f"{one:.3f}" for one in both)] for family, both in families.items()]
            rows = [["family", "kept", "empty"], *shares]
            yield f"## {title}, {name}\n\n{markdown_table(rows)}"


def _by_family(judged: Judged) -> dict[str, list[float]]:
    return {
        family: [round(kept, 3), round(judged.empty[family], 3)]
        for family, kept in judged.kept.items()
        if not math.isnan(kept)
    }


def _spelt(weights: Weights) -> list[float]:
    return [round(one, 3) for one in (weights.intercept, *weights.slopes)]
