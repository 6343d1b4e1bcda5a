"""Every path of the repository that a document names exists."""

import re
from pathlib import Path

import pytest

from tests.unit.repository.test_layout import ROOT, tracked

QUOTED = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"[\w.-]+(/[\w.*-]+)*/?")
FORMER = re.compile(r"\bcommit\s+[0-9a-f]{8}\b")
FILES = [path.relative_to(ROOT).as_posix() for path in tracked()]
FOLDERS = {name.split("/")[0] for name in FILES if "/" in name}
DOCUMENTS = tracked("*.md")


def named_paths(document: Path) -> set[str]:
    """The quoted words of a document that read as a path of the repository, from its root or from a room.

    A bare file name may be one that the reader is to write. A paragraph that names a commit speaks of what was there.
    """
    present = [part for part in document.read_text().split("\n\n") if not FORMER.search(part)]
    words = {word for part in present for word in QUOTED.findall(part) if "/" in word and PATH.fullmatch(word)}
    return {word for word in words if word.split("/")[0] in FOLDERS or word.endswith((".py", ".sql"))}


def exists(name: str, document: Path) -> bool:
    """Return whether a path leads somewhere: from the root, from the document, or as the end of a file's path."""
    if any(ROOT.glob(name)) or (document.parent / name).exists():
        return True
    return any(file.endswith(f"/{name}") for file in FILES)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_paths_that_a_document_names_exist(document: Path) -> None:
    """A reader who opens a quoted path finds it."""
    assert [name for name in sorted(named_paths(document)) if not exists(name, document)] == []
