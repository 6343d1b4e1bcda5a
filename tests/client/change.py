"""The patch that makes the memory API use our library: counts its lines, checks it, and applies it to a copy."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from devcluster.settings import REPOSITORY

PATCH = REPOSITORY / "examples" / "claude-memory" / "memory-index.patch"
MOST_LINES = 30
_HUNK = re.compile(r"^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")


@dataclass(frozen=True)
class Change:
    """What a patch changes: the files, and the lines that it adds and removes."""

    files: tuple[str, ...]
    added: tuple[str, ...]
    removed: tuple[str, ...]

    @property
    def lines(self) -> int:
        """How many lines the patch adds and removes."""
        return len(self.added) + len(self.removed)


def read_change(text: str) -> Change:
    """Parse a patch as `git diff` writes it.

    Raises:
        ValueError: a hunk has more or fewer lines than its head says, so the patch could not be applied.
    """
    files: list[str] = []
    added: list[str] = []
    removed: list[str] = []
    old = new = 0
    for line in text.splitlines():
        if head := _HUNK.match(line):
            if old or new:
                raise ValueError(f"a hunk ends before {line!r}, {old} and {new} lines early")
            old, new = (int(count or 1) for count in head.groups())
        elif old or new:
            old -= not line.startswith("+")
            new -= not line.startswith("-")
            if line.startswith(("+", "-")):
                (added if line.startswith("+") else removed).append(line[1:])
        elif line.startswith("+++ b/"):
            files.append(line.removeprefix("+++ b/"))
    if old or new:
        raise ValueError(f"the last hunk ends {old} and {new} lines early")
    return Change(tuple(files), tuple(added), tuple(removed))


def copy_client(client: Path, target: Path, *, patched: bool) -> None:
    """Copy the API's sources into the directory `target`, which must not exist, and apply the patch if asked to.

    Raises:
        subprocess.CalledProcessError: the patch does not fit these sources.
    """
    shutil.copytree(client, target, ignore=shutil.ignore_patterns(".git", "__pycache__", ".venv"))
    for path in [target, *target.rglob("*")]:
        path.chmod(path.stat().st_mode | 0o200)
    if patched:
        # Outside of any repository, or git would take the paths for those of the repository around it.
        environment = {"GIT_CEILING_DIRECTORIES": str(target.parent), "PATH": "/usr/bin:/bin:/usr/local/bin"}
        subprocess.run(["git", "apply", str(PATCH)], cwd=target, env=environment, check=True)
