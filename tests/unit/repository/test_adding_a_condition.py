"""A new condition is a small change: the patch under docs/examples adds one, which is shown wherever conditions are."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PATCH = ROOT / "docs" / "examples" / "last-backup.patch"
CHECK = Path(__file__).with_name("condition_check.py")
MOST_FILES = 8


def checked(tree: Path, *, patch: bool) -> "subprocess.CompletedProcess[str]":
    """Run the check in a copy of the tree's operator, library and chart, with the patch or without."""
    for folder in ("operator", "recall", "charts", "docs"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    if patch:
        subprocess.run(["git", "init", "-q"], cwd=tree, check=True)
        subprocess.run(["git", "apply", PATCH], cwd=tree, check=True)
    path = f"{tree / 'operator'}:{tree / 'recall'}:{ROOT}"
    environment = {"PYTHONPATH": path, "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
    return subprocess.run(
        [sys.executable, CHECK], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )


def test_a_condition_takes_at_most_eight_files_of_what_ships_and_no_list_of_conditions_elsewhere() -> None:
    """A ninth, which is no part of what ships, says what the condition and its reasons mean on the reference page."""
    changed = re.findall(r"^diff --git a/(\S+)", PATCH.read_text(encoding="utf-8"), re.MULTILINE)
    shipped = [name for name in changed if name.startswith(("operator/", "recall/", "charts/"))]
    assert 0 < len(shipped) <= MOST_FILES
    assert set(changed) - set(shipped) == {"docs/makers/references/meanings.py"}
    assert not any(name.startswith(("recall/", "devcluster/")) for name in changed)


def test_the_patched_operator_reports_the_condition_stays_ready_and_is_shown_by_the_screen(tmp_path: Path) -> None:
    """The check is a program that imports the patched operator."""
    done = checked(tmp_path, patch=True)
    assert done.returncode == 0, done.stderr


def test_the_check_fails_without_the_patch(tmp_path: Path) -> None:
    """So that it means something where it passes."""
    done = checked(tmp_path, patch=False)
    assert done.returncode != 0
    assert "_last_backup" in done.stderr
