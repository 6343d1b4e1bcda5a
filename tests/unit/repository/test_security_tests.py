"""Every finding of the reviews and every promise of SECURITY.md names tests, and those exist."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from tests.unit.repository.test_layout import ROOT

FINDINGS = ROOT / "docs" / "security-tests.md"
PROMISES = ROOT / "SECURITY.md"
TESTS = ROOT / "tests"
EXPECTED = {"D": 31, "H": 8, "M": 12, "L": 14}
REFERENCE = re.compile(r"`([^`\s]+::[^`]+)`")
NAMED = re.compile(r"([\w/]+\.py)::(test_\w+)(?:\[(.+)\])?")
ATTACKERS = (
    "The author of a MemoryIndex",
    "Who may write a Secret",
    "Who may write rows",
    "Who may call the embedder",
    "Who may call the recall route",
    "Who holds the operator's token",
    "A hostile database server",
    "A hostile model file",
    "A neighbour on the network",
)
ROW = re.compile(r"^\| ([DHML]\d+) \| (.+) \| (.+) \|$", re.MULTILINE)
FIRST_VALUES = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
OTHER_ROWS = re.compile(r"\bD\d+\b")


def rows() -> list[tuple[str, str, str]]:
    """Each row of the tables: the finding, what happened, and what closes it."""
    return ROW.findall(FINDINGS.read_text())


def promises() -> list[tuple[str, str]]:
    """Each promise of SECURITY.md with the last cell of its row."""
    lines = [line.strip("|").split(" | ") for line in PROMISES.read_text().splitlines() if line.startswith("| ")]
    return [(cells[0].strip(), cells[-1]) for cells in lines if cells[0].strip() != "Promise"]


@cache
def parsed(path: Path) -> ast.Module:
    """A module's syntax tree."""
    return ast.parse(path.read_text())


def functions(path: Path) -> set[str]:
    """Names of the functions of a module."""
    return {node.name for node in ast.walk(parsed(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def texts(path: Path) -> set[str]:
    """The texts in a module and in the modules of ours that it imports, among which the names of its cases are."""
    imported = [node.module for node in ast.walk(parsed(path)) if isinstance(node, ast.ImportFrom) and node.module]
    modules = [root / f"{name.replace('.', '/')}.py" for name in imported for root in (ROOT, ROOT / "benchmarks")]
    found = (node for module in (path, *modules) if module.is_file() for node in ast.walk(parsed(module)))
    return {node.value for node in found if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def missing(document: str) -> Iterator[str]:
    """The tests that a document names and the tree does not have."""
    for reference in REFERENCE.findall(document):
        named = NAMED.fullmatch(reference)
        path = TESTS / (named[1] if named else "")
        known = named and path.is_file() and named[2] in functions(path) and (not named[3] or named[3] in texts(path))
        if not known:
            yield reference


def test_every_finding_has_one_row() -> None:
    numbered = [f"{letter}{number}" for letter, most in EXPECTED.items() for number in range(1, most + 1)]
    assert [finding for finding, _, _ in rows()] == numbered


@pytest.mark.parametrize(("finding", "closed_by"), [(finding, closed) for finding, _, closed in rows()])
def test_every_finding_names_its_tests_or_says_why_it_is_open(finding: str, closed_by: str) -> None:
    assert REFERENCE.search(closed_by) or "Open" in closed_by or OTHER_ROWS.search(closed_by), finding


@pytest.mark.parametrize(("promise", "tests"), promises())
def test_every_promise_names_its_tests(promise: str, tests: str) -> None:
    assert REFERENCE.search(tests), promise


@pytest.mark.parametrize("attacker", ATTACKERS)
def test_every_attacker_may_something_and_is_promised_something(attacker: str) -> None:
    section = PROMISES.read_text().split(f"\n## {attacker}\n")[1].split("\n## ")[0]
    assert "**May**" in section
    assert "| Promise |" in section


@pytest.mark.parametrize("document", [FINDINGS, PROMISES], ids=lambda path: path.name)
def test_every_test_that_a_document_names_exists(document: Path) -> None:
    assert list(missing(document.read_text())) == []


@pytest.mark.parametrize(
    "named",
    [
        "unit/nowhere.py::test_x",
        "test_x::unit/nowhere.py",
        "unit/repository/test_security_tests.py::test_x",
        "unit/repository/test_security_tests.py::test_every_finding_has_one_row[no such " + "case]",
    ],
)
def test_a_test_that_does_not_exist_is_noticed(named: str) -> None:
    assert list(missing(f"closed by `{named}`")) == [named]


def test_the_installation_page_begins_with_named_namespaces() -> None:
    """Without names the operator may read Secrets everywhere, so the first values that a reader copies name some."""
    page = (ROOT / "docs" / "install.md").read_text().split("\n## With helm\n")[1]
    first = FIRST_VALUES.search(page)
    assert first is not None
    assert yaml.safe_load(first[1])["watchNamespaces"]
