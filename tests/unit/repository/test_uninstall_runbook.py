"""The runbook that uninstalls one release leaves what is not its own, for a kubectl that only hears its commands.

That they uninstall is tried on a cluster, in tests/delivery.
"""

import os
import subprocess
from pathlib import Path

import pytest

from tests.delivery.pages import read_page

PAGE = Path(__file__).parents[3] / "docs" / "runbooks" / "uninstall.md"
LISTENER = """#!/bin/sh
echo "${0##*/} $*" >> "$HEARD"
case "$*" in
"get memoryindexes --all-namespaces -o name") printf %s "$INDEXES"; exit "$ANSWERED" ;;
"get deployments --all-namespaces"*) printf %s "$OPERATORS" ;;
esac
"""


def heard(folder: Path, **answers: str) -> list[str]:
    """The commands that the page runs for a release of two namespaces, by what is in the others."""
    for program in ("kubectl", "helm"):
        (folder / program).write_text(LISTENER)
        (folder / program).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "HEARD": str(folder / "heard"),
        "INDEXES": "",
        "OPERATORS": "",
        "ANSWERED": "0",
        **answers,
    }
    script = read_page(PAGE).script({"RELEASE": "ours", "NAMESPACES": "notes journal"})
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return (folder / "heard").read_text().splitlines()


def deletions(commands: list[str]) -> list[str]:
    return [command for command in commands if " delete " in f" {command} "]


OURS = [
    "kubectl -n notes delete memoryindexes --all --wait --timeout=10m",
    "kubectl -n journal delete memoryindexes --all --wait --timeout=10m",
]
DEFINITION = "kubectl delete crd memoryindexes.memory-index.dev --wait --timeout=2m"


def test_the_last_release_takes_the_definition_along(tmp_path: Path) -> None:
    """In this order: objects, the operator that cleans up behind them, the definition."""
    commands = heard(tmp_path)
    assert deletions(commands) == [*OURS, DEFINITION]
    (helm,) = [command for command in commands if command.startswith("helm uninstall ours ")]
    assert commands.index(OURS[-1]) < commands.index(helm) < commands.index(DEFINITION)


@pytest.mark.parametrize(
    "others",
    [
        pytest.param({"INDEXES": "memoryindex.memory-index.dev/theirs"}, id="an-object-of-another-release"),
        pytest.param({"OPERATORS": "deployment.apps/memory-operator-staging"}, id="a-release-without-an-object"),
        pytest.param({"ANSWERED": "1"}, id="an-api-server-that-does-not-answer"),
    ],
)
def test_what_others_need_stays(others: dict[str, str], tmp_path: Path) -> None:
    """With the definition the API server would delete every MemoryIndex of the cluster."""
    assert deletions(heard(tmp_path, **others)) == OURS
