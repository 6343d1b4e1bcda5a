"""Every promise and every finding of a review names tests by their markers, and each marker names what there is."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from docs.makers.references.security import TESTS, Attacker, Marker, attackers, markers, page, reviews
from tests.support.yaml_text import read_yaml
from tests.unit.repository.test_layout import ROOT

PROMISES = {promise.key for attacker in attackers() for promise in attacker.promises}
FINDINGS = {finding.key: finding for review in reviews() for finding in review.findings}
REGISTERED = {"promise": PROMISES, "finding": set(FINDINGS)}
FIRST_VALUES = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)


@cache
def parsed(path: Path) -> ast.Module:
    """A module's syntax tree."""
    return ast.parse(path.read_text())


def texts(path: Path) -> set[str]:
    """The texts in a module and in the modules of ours that it imports, among which the names of its cases are."""
    imported = [node.module for node in ast.walk(parsed(path)) if isinstance(node, ast.ImportFrom) and node.module]
    modules = [root / f"{name.replace('.', '/')}.py" for name in imported for root in (ROOT, ROOT / "benchmarks")]
    found = (node for module in (path, *modules) if module.is_file() for node in ast.walk(parsed(module)))
    return {node.value for node in found if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def has_case(marker: Marker) -> bool:
    """Whether the test of this marker has the case that the marker names."""
    return not marker.case or marker.case in texts(TESTS / marker.test.partition("::")[0])


@pytest.mark.finding("D28")
def test_every_promise_has_a_test() -> None:
    assert sorted(PROMISES - {marker.key for marker in markers() if marker.kind == "promise"}) == []


def test_every_finding_has_a_test_or_says_why_it_is_open() -> None:
    closed = {marker.key for marker in markers() if marker.kind == "finding"}
    assert [key for key, finding in FINDINGS.items() if key not in closed and not finding.open] == []


def test_a_finding_that_a_test_holds_is_open_in_no_part_or_on_purpose() -> None:
    """Once it is closed, the page would go on calling it open."""
    closed = {marker.key for marker in markers() if marker.kind == "finding"}
    still_open = {key: finding.open for key, finding in FINDINGS.items() if key in closed and finding.open}
    assert [key for key, text in still_open.items() if not text.startswith("on purpose: ")] == []


def test_every_marker_names_a_promise_or_finding_that_is_registered() -> None:
    assert [marker for marker in markers() if marker.key not in REGISTERED[marker.kind]] == []


def test_every_marker_names_a_case_that_its_test_has() -> None:
    assert [marker for marker in markers() if not has_case(marker)] == []


def test_a_case_that_a_test_does_not_have_is_noticed() -> None:
    here = "unit/repository/test_security_tests.py::test_every_promise_has_a_test"
    assert not has_case(Marker("promise", "any", here, case="no such " + "case"))


def test_a_marker_whose_text_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A marker that is computed would be missing on the page without a word."""
    (tmp_path / "test_computed.py").write_text("@pytest.mark.finding(KEY)\ndef test_x() -> None: ...\n")
    monkeypatch.setattr("docs.makers.references.security.TESTS", tmp_path)
    markers.cache_clear()
    try:
        with pytest.raises(ValueError, match=r"test_computed\.py::test_x: @pytest\.mark\.finding takes a text"):
            markers()
    finally:
        markers.cache_clear()


def test_a_key_is_registered_once() -> None:
    keys = [promise.key for attacker in attackers() for promise in attacker.promises]
    found = [finding.key for review in reviews() for finding in review.findings]
    assert (len(keys), len(found)) == (len(PROMISES), len(FINDINGS))


@pytest.mark.parametrize("attacker", attackers()[1:], ids=lambda attacker: attacker.name)
def test_every_attacker_may_something_and_is_reached_from_the_security_page(attacker: Attacker) -> None:
    anchor = re.sub(r"[^a-z0-9 -]", "", attacker.name.lower()).replace(" ", "-")
    assert f"(docs/reference/security.md#{anchor})" in (ROOT / "SECURITY.md").read_text()
    assert f"## {attacker.name}\n\n**May**" in page()


@pytest.mark.finding("M10")
def test_the_installation_page_begins_with_named_namespaces() -> None:
    """Without names the operator may read Secrets everywhere, so the first values that a reader copies name some."""
    page = (ROOT / "docs" / "install.md").read_text().split("\n## With helm\n")[1]
    first = FIRST_VALUES.search(page)
    assert first is not None
    assert read_yaml(first[1])["watchNamespaces"]
