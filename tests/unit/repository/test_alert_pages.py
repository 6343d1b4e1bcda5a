"""Whoever gets an alert finds the page that says what to do, and a first command."""

import re
from pathlib import Path
from typing import Any

import pytest
from pymdownx.slugs import slugify

from devcluster.settings import REPOSITORY
from tests.support.yaml_text import read_yaml
from tests.unit.chart.conftest import CHART

RUNBOOKS = REPOSITORY / "docs" / "runbooks" / "README.md"
RULES: list[dict[str, Any]] = read_yaml((CHART / "files" / "alerts.yaml").read_text())["groups"][0]["rules"]
ROW = re.compile(r"^\| `(Memory\w+)` \| \[[^\]]+\]\(([^)]+)\) \| `kubectl [^`]+` \|$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as the site and the repository's view make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {slugify(case="lower")(heading, "-") for heading in headings}


def place_of(link: str, folder: Path) -> tuple[Path, str]:
    """Return the file that a link leads to from a folder, and the anchor in that file; empty if it names none."""
    path, _, anchor = link.partition("#")
    return (folder / path).resolve(), anchor


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_every_alert_names_a_page_that_exists_and_where_it_names_one_a_heading_on_it(rule: dict[str, Any]) -> None:
    page, anchor = place_of(rule["annotations"]["runbook"], REPOSITORY)
    assert page.is_file()
    assert page.suffix == ".md"
    assert not anchor or anchor in anchors(page)


def test_the_table_of_the_runbooks_names_every_alert_once_with_its_page_and_a_first_command() -> None:
    rows = ROW.findall(RUNBOOKS.read_text(encoding="utf-8"))
    found = [(alert, place_of(link, RUNBOOKS.parent)) for alert, link in rows]
    assert found == [(rule["alert"], place_of(rule["annotations"]["runbook"], REPOSITORY)) for rule in RULES]
