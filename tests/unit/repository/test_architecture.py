"""The page on the architecture lists every room."""

import re
from pathlib import Path

import pytest

from tests.unit.repository.test_layout import ROOT, tracked

PACKAGES = ("operator/memory_operator", "recall/memory_recall", "embedder-service/memory_embedder")
ROOMS = re.compile(r"`([\w-]+)/`")


def rows(heading: str) -> list[str]:
    """The first cells of the table whose heading begins so."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    table = page[page.index(f"| {heading}") :].partition("\n\n")[0]
    return [line.split("|")[1] for line in table.splitlines()[2:]]


def folders(inside: Path) -> set[str]:
    """The folders with files that git tracks."""
    found = (path.relative_to(inside).parts for path in tracked() if path.is_relative_to(inside))
    return {parts[0] for parts in found if len(parts) > 1 and not parts[0].startswith(".")}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_room_of_a_package_is_listed(package: str) -> None:
    listed = {name for row in rows(f"`{package}`") for name in ROOMS.findall(row)}
    assert listed == folders(ROOT / package)


def test_every_folder_beside_the_packages_is_listed() -> None:
    listed = {name for row in rows("beside the packages") for name in ROOMS.findall(row)}
    assert listed == folders(ROOT) - {package.partition("/")[0] for package in PACKAGES}
