"""Whoever takes a namespace out of the release learns beforehand what has to be deleted first."""

from tests.support.documents import ROOT


def test_the_value_of_the_watched_namespaces_names_the_page_about_one_that_leaves() -> None:
    values = (ROOT / "charts" / "memory-index" / "values.yaml").read_text(encoding="utf-8")
    comment = values.split("\nwatchNamespaces:")[0].rsplit("\n\n", 1)[-1]
    page = "docs/runbooks/uninstall.md"
    assert page in comment
    assert "**If only one namespace leaves the release**" in (ROOT / page).read_text(encoding="utf-8")
