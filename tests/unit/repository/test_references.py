"""The pages of docs/reference are those of the code; `make references` writes them anew."""

from typing import Any

import pytest

from docs.makers.references import FOLDER, PAGES, chart, http, meanings, metrics, settings
from memory_embedder.errors import ErrorKind
from memory_operator.api.conditions import ConditionType
from memory_operator.api.reasons import Reason

MOST_SETTINGS = 43


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_page_is_that_of_the_code(name: str) -> None:
    """A page that is kept can neither lack nor invent a field, value, command, request, metric, setting or reason."""
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name](), "run `make references`"


def test_no_other_page_is_kept_among_the_references() -> None:
    """A page that nothing generates would be believed to be the code's."""
    assert {path.name for path in FOLDER.iterdir()} == set(PAGES)


def test_every_condition_reason_and_error_says_what_it_means() -> None:
    """A table cannot have a row without a meaning, nor a meaning without a row."""
    assert set(meanings.CONDITIONS) == set(ConditionType)
    assert set(meanings.REASONS) == set(Reason)
    assert set(http.CAUSES) == set(ErrorKind)


def cells(page: str, column: int) -> dict[str, str]:
    """Return a column of all tables of a page by the text of their first column."""
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| `")]
    return {row[0]: row[column].strip() if column < len(row) else "" for row in rows}


@pytest.mark.parametrize(
    ("name", "column"),
    [("memoryindex.md", 3), ("chart-values.md", 2), ("metrics.md", 3), ("settings.md", 2), ("reasons.md", 1)],
)
def test_every_row_has_a_meaning(name: str, column: int) -> None:
    """A field, value, metric, setting or reason without a description would be an empty cell."""
    page = PAGES[name]().partition("## `status`")[0]  # whose tables have no defaults
    rows = cells(page, column)
    assert rows
    assert [row for row, meaning in rows.items() if not meaning] == []


def test_every_remedy_is_shown() -> None:
    """The remedy that a condition shows is the one of the page."""
    page = PAGES["reasons.md"]()
    assert [reason.code for reason in Reason if f"`{reason.code}`" not in page] == []
    assert all(f"| {reason.remedy} |" in page for reason in Reason if reason.remedy and "`" not in reason.remedy)


def test_there_are_few_variables() -> None:
    """What nobody needs to set is a constant."""
    assert sum(len(settings.variables(process)) for process in settings.PROCESSES) <= MOST_SETTINGS


def test_a_metric_is_listed_with_the_labels_that_it_has() -> None:
    """Labels are read from metrics with and without samples."""
    rows = {name: labels for name, _, labels, _ in metrics.rows(metrics.registries()["Embedder"])}
    assert rows["`memory_embedder_requests_total`"] == "`route`, `status`"  # has no sample yet
    assert rows["`memory_embedder_queued_tokens`"] == "`lane`"  # made when it is collected
    assert rows["`memory_embedder_wait_seconds`"] == "`lane`"  # a histogram, whose buckets have one more


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("# About a.\na: 1\n", {"a": "About a."}),
        ("# Of another time.\n\na: 1\n", {}),
        ("a:\n  # About b,\n  # in two lines.\n  b: 1\nc: 1\n", {"a.b": "About b, in two lines."}),
        ("a:\n  b:\n    c: 1\n  # About d.\n  d: 1\n", {"a.d": "About d."}),
    ],
)
def test_a_comment_belongs_to_the_key_below_it(text: str, found: dict[str, Any]) -> None:
    """A comment of values.yaml is the meaning of one value, and of no other."""
    assert chart.comments(text) == found
