"""The version of the project is written by one command into every file that has one."""

import re
import shutil
from pathlib import Path

import pytest

from devcluster.errors import DevclusterError
from devcluster.release.version import PLACES, read_version, write_version
from devcluster.settings import REPOSITORY

PATHS = sorted({place.path for place in PLACES})


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for path in PATHS:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / path, tmp_path / path)
    return tmp_path


def test_every_place_of_this_checkout_has_the_same_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+\S*", read_version(REPOSITORY))


def test_a_new_version_is_written_everywhere_and_nothing_else_changes(checkout: Path) -> None:
    before = {path: (checkout / path).read_text() for path in PATHS}
    version = read_version(checkout)
    assert sorted(write_version(checkout, "12.34.56-rc.1")) == PATHS
    assert read_version(checkout) == "12.34.56-rc.1"
    assert {path: (checkout / path).read_text().replace("12.34.56-rc.1", version) for path in PATHS} == before


def test_writing_the_present_version_changes_no_file(checkout: Path) -> None:
    assert write_version(checkout, read_version(checkout)) == []


def test_a_file_that_was_forgotten_is_named_with_its_version(checkout: Path) -> None:
    chart = checkout / "charts" / "memory-index" / "Chart.yaml"
    chart.write_text(chart.read_text().replace("appVersion: ", "appVersion: 9.9.9 # "))
    with pytest.raises(DevclusterError, match=r"Chart.yaml: (no version|9.9.9)"):
        read_version(checkout)


@pytest.mark.parametrize("version", ["v1.2.3", "1.2", "1.2.3+build", "latest", ""])
def test_what_is_no_version_is_refused_before_anything_is_written(checkout: Path, version: str) -> None:
    before = read_version(checkout)
    with pytest.raises(DevclusterError, match=r"X\.Y\.Z"):
        write_version(checkout, version)
    assert read_version(checkout) == before
