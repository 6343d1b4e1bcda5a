"""The example of the first user's memory API: the patch is small and well formed, and what it names exists."""

import ast
import os
import re
from pathlib import Path

import pytest

import memory_recall
from tests.client.change import MOST_LINES, PATCH, copy_client, read_change
from tests.support.yaml_text import read_yaml

ROOT = Path(__file__).parents[3]
CLIENT = os.environ.get("CLIENT")
DOCKERFILE = (PATCH.parent / "Dockerfile").read_text()


def test_the_patch_is_well_formed_and_has_at_most_30_lines() -> None:
    """Added and removed lines count, empty ones too, and it touches only the API's own modules."""
    change = read_change(PATCH.read_text())
    assert 0 < change.lines <= MOST_LINES
    assert {str(Path(name).parent) for name in change.files} == {"src/claude_memory/api"}


@pytest.mark.parametrize("dropped", [r"^\+.*\n", r"^-.*\n", r"^ .*\n"])
def test_a_patch_that_lacks_a_line_is_refused(dropped: str) -> None:
    """The heads of the hunks say how many lines they have, and nothing that could not be applied passes."""
    body = PATCH.read_text()
    start = body.index("@@")
    with pytest.raises(ValueError, match="early"):
        read_change(body[:start] + re.sub(dropped, "", body[start:], count=1, flags=re.MULTILINE))


def test_the_patch_imports_what_the_library_offers() -> None:
    """Only names of the public interface."""
    added = read_change(PATCH.read_text()).added
    imported = [ast.parse(line).body[0] for line in added if line.startswith("from memory_recall")]
    assert imported
    for statement in imported:
        assert isinstance(statement, ast.ImportFrom)
        assert {name.name for name in statement.names} <= set(memory_recall.__all__)
    assert hasattr(memory_recall.HybridRecall, "recall_rows")


def test_the_dockerfile_takes_files_that_are_in_the_build_context() -> None:
    """Besides those of the API, which come from a context of their own."""
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE)
    assert copied
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for path in " ".join(copied).split():
        assert (ROOT / path).exists(), path
        assert path.split("/")[0] in allowed


def test_the_index_of_the_example_replaces_the_api_s_empty_column() -> None:
    """By the field that allows it, in the namespace and database that the pages name."""
    index = read_yaml((PATCH.parent / "memoryindex.yaml").read_text())
    assert index["spec"]["database"]["existingVectors"] == "Discard"


if CLIENT:

    def test_the_patch_applies_to_the_api_at_hand(tmp_path: Path) -> None:
        """Where its sources are given by CLIENT=path; nothing of them is kept in the repository."""
        copy_client(Path(CLIENT), tmp_path / "client", patched=True)
        for name in read_change(PATCH.read_text()).files:
            assert "memory_recall" in (tmp_path / "client" / name).read_text() or name.endswith(("app.py", "models.py"))
