"""A new filter is a small change: the patch under docs/examples adds one, and works everywhere."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PATCH = ROOT / "docs" / "examples" / "min-importance.patch"
CHECK = Path(__file__).with_name("filter_check.py")
MOST_FILES = 6


@pytest.fixture
def patched(tmp_path: Path) -> Path:
    """A copy of the tree's shipped code with the patch applied."""
    tree = tmp_path / "tree"
    for folder in ("recall", "docs"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__", "*.png"))
    subprocess.run(["git", "init", "-q"], cwd=tree, check=True)
    subprocess.run(["git", "apply", "--verbose", PATCH], cwd=tree, check=True)
    return tree


def test_a_filter_takes_at_most_six_files_outside_tests_and_documents() -> None:
    """Code, schema and chart files count."""
    changed = re.findall(r"^diff --git a/(\S+)", PATCH.read_text(), re.MULTILINE)
    assert changed
    assert len([name for name in changed if not name.startswith(("tests/", "docs/"))]) <= MOST_FILES


def test_the_patched_tree_filters_in_library_router_command_line_and_sqlite(patched: Path) -> None:
    """The check is a program that imports the patched library."""
    environment = {
        "PYTHONPATH": f"{patched / 'recall'}:{ROOT}",
        "PATH": "/usr/bin:/bin",
        "HOME": "/nonexistent",
    }
    checked = subprocess.run(
        [sys.executable, CHECK], cwd=patched, env=environment, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr


def test_the_check_fails_without_the_patch(tmp_path: Path) -> None:
    """So that it means something where it passes."""
    shutil.copytree(ROOT / "recall", tmp_path / "recall", ignore=shutil.ignore_patterns("__pycache__"))
    environment = {
        "PYTHONPATH": f"{tmp_path / 'recall'}:{ROOT}",
        "PATH": "/usr/bin:/bin",
        "HOME": "/nonexistent",
    }
    checked = subprocess.run(
        [sys.executable, CHECK], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert checked.returncode != 0
    assert "min_importance" in checked.stderr
