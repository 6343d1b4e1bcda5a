"""A marker in a log is found, whenever it was written and whatever becomes of the file."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.soak.logs import Logs

MARKER = "zq00000000000001"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    folder = tmp_path / "pods"
    folder.mkdir()
    return folder / "0.log"


def test_a_marker_that_was_written_later_is_found_after_the_file_is_gone(tmp_path: Path, log: Path) -> None:
    logs = Logs(tmp_path)
    log.write_text("started\n")
    logs.read()
    assert logs.found == set()
    with log.open("a") as file:
        file.write(f"the text {MARKER} of a memory\n")
    logs.read()
    log.unlink()
    logs.read()
    assert logs.found == {"pods/0.log"}


def test_a_marker_that_was_half_written_is_found(tmp_path: Path, log: Path) -> None:
    logs = Logs(tmp_path)
    log.write_text(MARKER[:7])
    logs.read()
    log.write_text(MARKER)
    logs.read()
    assert logs.found == {"pods/0.log"}


def test_a_file_that_begins_anew_is_read_from_its_beginning(tmp_path: Path, log: Path) -> None:
    logs = Logs(tmp_path)
    log.write_text("a long line that is rotated away\n" * 10)
    logs.read()
    log.write_text(f"{MARKER}\n")
    logs.read()
    assert logs.found == {"pods/0.log"}


def test_a_file_that_was_replaced_by_a_longer_one_is_read_from_its_beginning(tmp_path: Path, log: Path) -> None:
    logs = Logs(tmp_path)
    log.write_text("a line\n" * 10)
    assert logs.read() == set()
    other = log.with_suffix(".partial")
    other.write_text(f"{MARKER}\n" + "another line\n" * 10)
    other.rename(log)
    assert logs.read() == {"pods/0.log"}
    assert logs.read() == set()


def test_other_words_are_no_texts_of_memories(tmp_path: Path, log: Path) -> None:
    logs = Logs(tmp_path)
    log.write_text("zq123 zqzzzzzzzzzzzzzz zq 0000000000000001\n")
    logs.read()
    assert logs.found == set()


def test_a_directory_that_vanishes_while_it_is_read_does_not_keep_others_from_being_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.log").write_text(f"{MARKER}\n")
    scan = os.scandir

    def scandir(path: Any) -> Iterator[os.DirEntry[str]]:
        if str(path) == str(tmp_path / "b"):
            shutil.rmtree(path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)
    logs = Logs(tmp_path)
    logs.read()
    assert logs.found == {"a/0.log", "c/0.log"}
