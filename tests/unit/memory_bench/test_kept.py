"""What the repository keeps of benchmarks is small, and pages quote nothing else."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from devcluster.building.digests import digest_of
from docs.makers.site import figures
from memory_bench.kept import KEPT, Kept, in_few_lines, summary
from tests.unit.repository.test_layout import ROOT, tracked

RESULTS = ROOT / "benchmarks" / "results"
MOST_LINES, MOST_BYTES = 60, 80_000
PAGES = [path for path in tracked("*.md") if not path.is_relative_to(ROOT / "docs" / "adr")]
QUOTES = [
    pytest.param(benchmark, part, id=f"{path.relative_to(ROOT)}: {benchmark}")
    for path in PAGES
    for benchmark, part in figures.marked_parts(path.read_text())
]
NUMBER = re.compile(r"(?<![\w.,/])[+-]?(\d[\d,]*(?:\.\d+)?|\.\d+)(?![\w])( %)?")
NO_FIGURES = re.compile(r"`[^`]*`|\]\([^)]*\)")


def numbers(value: object) -> Iterator[float]:
    """Every number of a summary, those in names and texts included."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from numbers(name)
            yield from numbers(each)
    elif isinstance(value, list):
        for each in value:
            yield from numbers(each)
    elif isinstance(value, str):
        yield from (float(found[1].replace(",", "")) for found in NUMBER.finditer(value))
    elif isinstance(value, int | float):
        yield float(value)


def unknown(part: str, known: set[float]) -> list[str]:
    """The numbers of a text that are no figure, rounded as the text rounds it, as a share or in per cent."""
    found = []
    for quoted in NUMBER.finditer(NO_FIGURES.sub("", part)):
        digits = len(quoted[1].partition(".")[2])
        number = float(quoted[1].replace(",", ""))
        values = {100 * one for one in known} if quoted[2] else known
        if not any(abs(abs(one) - number) <= 0.5 * 10**-digits + 1e-9 for one in values):
            found.append(quoted[0])
    return found


@pytest.mark.parametrize(("benchmark", "part"), QUOTES)
def test_a_page_quotes_only_figures_that_are_kept(benchmark: str, part: str) -> None:
    known = set(numbers(json.loads((RESULTS / benchmark / "summary.json").read_text())["figures"]))
    assert unknown(part, known) == []


@pytest.mark.parametrize(
    ("part", "left"),
    [
        ("| 1,175 ms | .57 | 2.7 % |", []),
        ("`--rows 5000` took [1,175 ms](page.md#9)", []),
        ("p95 was 1,176 ms", ["1,176"]),
        ("2.8 %, .58, 27", ["2.8 %", ".58", "27"]),
    ],
)
def test_a_figure_that_is_not_kept_is_noticed(part: str, left: list[str]) -> None:
    """It may be rounded, and be a share in per cent; options of commands and links are none."""
    assert unknown(part, {1175.416, 0.5657, 0.027}) == left


def test_every_summary_is_quoted_and_every_quoted_summary_is_kept() -> None:
    """A figure that no page shows is of no use here."""
    kept = {path.parent.name for path in RESULTS.glob("*/summary.json")}
    assert kept == {str(case.values[0]) for case in QUOTES} == set(KEPT)


def test_nothing_is_kept_but_summaries_and_pictures_that_a_page_shows() -> None:
    shown = {
        name for path in PAGES for name in re.findall(r"!\[[^\]]*\]\([\w./-]*/(results/[\w./-]+)\)", path.read_text())
    }
    kept = {path.relative_to(RESULTS.parent).as_posix(): path for path in RESULTS.rglob("*") if path.is_file()}
    assert set(kept) - {f"results/{name}/summary.json" for name in KEPT} == shown
    assert {name for name, path in kept.items() if path.stat().st_size > MOST_BYTES} == set()


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*/summary.json")), ids=lambda path: path.parent.name)
def test_a_summary_is_short_and_says_what_was_measured_where_and_when(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MOST_LINES
    found = json.loads(path.read_text())
    assert set(found) == {"made_at", "commit", "machine", "exercises", "figures"}
    assert set(found["exercises"]) == set(KEPT[path.parent.name].exercises)
    assert digest_of({}) not in found["exercises"].values(), "the digest of nothing says nothing of what was measured"


def test_what_a_benchmark_exercises_exists() -> None:
    """The digest of a path without files would never change."""
    assert [path for kept in KEPT.values() for path in kept.exercises if not (ROOT / path).exists()] == []


@pytest.fixture
def kept_summary(tmp_path: Path) -> Path:
    """The summary of a benchmark that exercises one folder and one file."""
    (tmp_path / "search").mkdir()
    (tmp_path / "search" / "legs.py").write_text("DEPTH = 50")
    (tmp_path / "bench.py").write_text("")
    kept = Kept("written.json", lambda written: {"p95": written["p95"]}, ("search", "bench.py"))
    made = {"made_at": "2026-11-26T15:31:55+00:00", "commit": {"id": "e5d77e495e1b"}, "machine": {}}
    path = tmp_path / "summary.json"
    path.write_text(in_few_lines(summary(kept, {"p95": 40, "raw": [1] * 1000}, made, tmp_path)))
    return path


def test_a_page_says_when_its_figures_were_measured(kept_summary: Path) -> None:
    assert str(figures.measured(kept_summary, kept_summary.parent)) == "*Measured on 2026-11-26 at commit e5d77e49.*"


def test_a_page_says_by_itself_that_its_figures_are_those_of_former_code(kept_summary: Path) -> None:
    """It names what has changed, and leaves out what has not."""
    (kept_summary.parent / "search" / "legs.py").write_text("DEPTH = 60")
    said = str(figures.measured(kept_summary, kept_summary.parent))
    assert said == "*Measured on 2026-11-26 at commit e5d77e49, before the present `search`.*"


def test_a_mark_becomes_a_sentence_and_the_figures_stay(monkeypatch: pytest.MonkeyPatch, kept_summary: Path) -> None:
    (kept_summary.parent / "latency").mkdir()
    kept_summary.rename(kept_summary.parent / "latency" / "summary.json")
    monkeypatch.setattr(figures, "RESULTS", kept_summary.parent)
    page = "<!-- figures of latency -->\n\n| 40 |\n\n<!-- end of figures -->\n"
    assert figures.marked_parts(page) == [("latency", "\n\n| 40 |\n\n")]
    assert figures.with_days_of_measurement(page).startswith("*Measured on 2026-11-26 at commit e5d77e49")
