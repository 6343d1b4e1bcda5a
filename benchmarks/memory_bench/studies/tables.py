"""The parts that the reports of the studies have in common."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import fill

import numpy as np

from memory_bench.report import markdown_table
from memory_bench.studies.gains import Fold, Gains, SettingScores, gains_of
from memory_bench.studies.questions import MEASURES
from memory_recall.evaluation.significance import Comparison, compare

_WIDTH = 120

Rows = Iterator[Sequence[str]]


def write_report(path: Path, opening: Iterable[str], sections: Mapping[str, Rows]) -> None:
    """Write a report: paragraphs that are wrapped, and then one table under each title."""
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = [fill(one, _WIDTH) + "\n" for one in opening]
    parts += [f"## {title}\n\n{markdown_table(rows)}" for title, rows in sections.items()]
    path.write_text("\n".join(parts), encoding="utf-8")


def interval(one: Comparison) -> str:
    """Return a difference with its interval and p value."""
    return f"{one.difference:+.4f} ({one.low:+.4f} to {one.high:+.4f}), p = {one.p_value:.4f}"


def cells(gains: Gains) -> list[str]:
    """Return one table cell for each measure: the difference with its interval and p value."""
    return [interval(gains[measure]) for measure in MEASURES]


def gains_cells(one: SettingScores[object], setting: int | None, chosen: "np.typing.NDArray[np.bool_]") -> list[str]:
    """Return one cell for each measure: the gains of a setting on the questions that are chosen."""
    found = gains_of(one, setting)[chosen]
    if not len(found):
        return ["" for _ in MEASURES]
    return [interval(compare([0.0] * len(found), found[:, place].tolist())) for place in range(len(MEASURES))]


def by_set(sets: Sequence[SettingScores[object]], setting: int) -> list[str]:
    """Return one cell for each set: the mean gains of a setting in all measures."""
    return ["/".join(f"{value:+.3f}" for value in one.gains[setting].mean(axis=0)) for one in sets]


def name_of(one: SettingScores[object], fold: Fold) -> str:
    """Return the name of the setting that was chosen."""
    return "none" if fold.setting is None else str(one.settings[fold.setting])


def prompts_rows(prompts: Sequence[SettingScores[object]], gains: Mapping[str, Gains], change: str) -> Rows:
    """Yield table rows: each set's scores for questions inside prompts without the change, and the differences."""
    yield [
        "set",
        *(f"{measure} without {change}" for measure in MEASURES),
        *(f"{measure}, change" for measure in MEASURES),
    ]
    for one in prompts:
        yield [one.name, *(f"{value:.3f}" for value in one.plain.mean(axis=0)), *cells(gains[one.name])]


def own_rows(own: Mapping[str, Gains]) -> Rows:
    """Yield table rows: by how much the measures change on our own set, homelab, and on each of its strata."""
    yield ["stratum", "recall@10", "nDCG@10"]
    for stratum, gains in own.items():
        yield [stratum or "all", *cells(gains)]
