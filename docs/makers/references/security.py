"""The page of what is promised to whom, of what reviews have found, and of the tests that hold each.

A test says by a marker what it holds: `@pytest.mark.promise("no-sensitive-vector")` or
`@pytest.mark.finding("database F0")`, with `case="..."` where only one case of a parametrised test does. The texts of
promises and findings are in `security.toml`. The markers are read from the sources, so that no test has to run.
"""

import ast
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from docs.makers.markdown import code, document, paragraph, table

REGISTER = Path(__file__).with_name("security.toml")
TESTS = Path(__file__).parents[3] / "tests"
KINDS = ("promise", "finding")

INTRODUCTION = """\
What is promised, to whom and against whom, and what reviews have found, all of it before the first release. Each row
names the tests that fail when the promise is broken or the finding is back, or says why the finding is open. Paths are
relative to `tests/`; one case of a test is in square brackets. Tests in `e2e/` and `delivery/` run on a real cluster
with CloudNativePG. [SECURITY.md](../../SECURITY.md) says what each attacker may do and what is not promised. A test
shows that it holds a row by the marker `promise` or `finding`, from which this page is made."""


@dataclass(frozen=True)
class Promise:
    """What is promised, and what enforces it."""

    key: str
    text: str
    enforced: str


@dataclass(frozen=True)
class Attacker:
    """Somebody against whom promises are made, and what they may do all the same."""

    name: str
    promises: tuple[Promise, ...]
    may: str = ""


@dataclass(frozen=True)
class Finding:
    """What a review has found; `open` says why it is not closed, or, from "on purpose" on, what of it stays so."""

    key: str
    text: str
    open: str = ""


@dataclass(frozen=True)
class Review:
    """A review of the project, and what it has found."""

    name: str
    findings: tuple[Finding, ...]


@dataclass(frozen=True, order=True)
class Marker:
    """A marker on a test: the promise or finding that the test holds."""

    kind: str
    key: str
    test: str
    case: str = ""

    def __str__(self) -> str:
        return f"{self.test}[{self.case}]" if self.case else self.test


@cache
def attackers() -> tuple[Attacker, ...]:
    """Return all promises by whom they are made against."""
    return tuple(
        Attacker(one["name"], tuple(Promise(**row) for row in one["promises"]), one.get("may", ""))
        for one in _register()["attackers"]
    )


@cache
def reviews() -> tuple[Review, ...]:
    """Return all findings by review."""
    return tuple(
        Review(one["name"], tuple(Finding(**row) for row in one["findings"])) for one in _register()["reviews"]
    )


@cache
def markers() -> tuple[Marker, ...]:
    """Return the markers of all tests, in the order of the tests' paths.

    Raises:
        ValueError: the arguments of a marker are no texts, so that they cannot be read without running the test.
    """
    return tuple(sorted(found for path in sorted(TESTS.rglob("test_*.py")) for found in _markers_in(path)))


def page() -> str:
    """Return the page of promises and findings."""
    tests = _tests_by_row(markers())
    promises = (
        document(
            f"## {attacker.name}",
            paragraph(attacker.may),
            table(
                ("Promise", "What enforces it", "Tests"),
                [(row.text, row.enforced, tests.get(("promise", row.key), "")) for row in attacker.promises],
            ),
        )
        for attacker in attackers()
    )
    findings = (
        document(
            f"## {review.name}",
            table(
                ("Finding", "What happened", "Tests"),
                [(row.key, row.text, _closed_by(row, tests)) for row in review.findings],
            ),
        )
        for review in reviews()
    )
    return document(
        "# Promises, findings and their tests", paragraph(" ".join(INTRODUCTION.split())), *promises, *findings
    )


def _closed_by(finding: Finding, tests: Mapping[tuple[str, str], str]) -> str:
    closed, rest = tests.get(("finding", finding.key), ""), f"Open: {finding.open}" if finding.open else ""
    return ". ".join(part for part in (closed, rest) if part)


def _tests_by_row(found: Iterable[Marker]) -> dict[tuple[str, str], str]:
    rows: dict[tuple[str, str], list[str]] = {}
    for marker in found:
        rows.setdefault((marker.kind, marker.key), []).append(code(marker))
    return {row: ", ".join(tests) for row, tests in rows.items()}


def _register() -> dict[str, Any]:
    return tomllib.loads(REGISTER.read_text(encoding="utf-8"))


def _markers_in(path: Path) -> Iterator[Marker]:
    source = path.read_text(encoding="utf-8")
    if "mark.promise" not in source and "mark.finding" not in source:
        return
    where = path.relative_to(TESTS).as_posix()
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for decorator in function.decorator_list:
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) in {
                f"pytest.mark.{kind}" for kind in KINDS
            }:
                kind = ast.unparse(decorator.func).rpartition(".")[2]
                yield _marker(kind, decorator, f"{where}::{function.name}")


def _marker(kind: str, call: ast.Call, test: str) -> Marker:
    case = next((word.value for word in call.keywords if word.arg == "case"), ast.Constant(""))
    texts = [
        node.value for node in (*call.args, case) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    if len(call.args) != 1 or len(texts) != 2 or [word.arg for word in call.keywords] not in ([], ["case"]):
        raise ValueError(f"{test}: @pytest.mark.{kind} takes a text, and as `case` another text")
    return Marker(kind, texts[0], test, texts[1])
