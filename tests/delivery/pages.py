"""Runs the commands of a documentation page, so that the page and its test cannot differ.

The first block of shell commands of a page sets its variables. A test gives some of them other values; everything else
is executed as it stands on the page.
"""

import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from devcluster.building.binaries import Binaries
from devcluster.cluster import Cluster
from devcluster.settings import REPOSITORY, Settings

_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ASSIGNMENT = re.compile(r"^([A-Z][A-Z_]*)=", re.MULTILINE)
_SECONDS = 1500
_SHOWN_CHARACTERS = 4000


@dataclass(frozen=True)
class Page:
    """A page: the block that sets its variables, the names of these variables, and the blocks of commands after it."""

    path: Path
    assignments: str
    variables: frozenset[str]
    blocks: tuple[str, ...]

    def script(self, values: Mapping[str, str]) -> str:
        """Return all commands of the page, with other values for some of its variables.

        Raises:
            AssertionError: the page has no variable of a name that is given.
        """
        assert values.keys() <= self.variables, f"{self.path.name} has no {values.keys() - self.variables}"
        changed = "\n".join(f"{name}={shlex.quote(value)}" for name, value in values.items())
        return "\n".join((self.assignments, changed, *self.blocks))


def read_page(path: Path) -> Page:
    """Read the variables and commands of a page."""
    assignments, *blocks = _BLOCK.findall(path.read_text(encoding="utf-8"))
    return Page(path, assignments, frozenset(_ASSIGNMENT.findall(assignments)), tuple(blocks))


def read_sections(path: Path) -> dict[str, tuple[str, ...]]:
    """Return the blocks of shell commands below each heading of a page that has any; the title is left out."""
    parts = re.split(r"^##+ (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    found = {heading: tuple(_BLOCK.findall(text)) for heading, text in zip(parts[1::2], parts[2::2], strict=True)}
    return {heading: blocks for heading, blocks in found.items() if blocks}


def run_page(page: Page, cluster: Cluster, values: Mapping[str, str]) -> str:
    """Run all commands of a page in one shell, from the root of the repository; return what they print.

    Raises:
        AssertionError: a command failed, or they took more than 25 minutes.
    """
    return run_script(page.script(values), cluster, page.path.name)


def run_script(script: str, cluster: Cluster, what: str, directory: Path = REPOSITORY) -> str:
    """Run shell commands in `directory` and return what they print; `what` names them in the message of a failure.

    The shell ends at the first command that fails. kubectl and helm are those of the development cluster.

    Raises:
        AssertionError: a command failed, or they took more than 25 minutes.
    """
    binaries = Binaries(Settings())
    found = [str(binaries.path(program).parent) for program in ("kubectl", "helm")]
    environment = {**cluster.shell_environment(), "PATH": os.pathsep.join([*found, os.environ["PATH"]])}
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", script],
        cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{what}: {done.stdout[-_SHOWN_CHARACTERS:]}"
    return done.stdout
