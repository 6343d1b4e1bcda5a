"""What the documents tell a reader to type exists."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^```(?:console|bash|sh|shell)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands(document: Path) -> list[str]:
    """The command lines of a document's shell blocks, continuation lines joined, prompts removed."""
    lines: list[str] = []
    for block in FENCE.findall(document.read_text()):
        for line in block.replace("\\\n", " ").splitlines():
            text = line.strip().removeprefix("$ ")
            if text and not text.startswith("#"):
                lines.append(text)
    return lines


CASES = [
    pytest.param(document, command, id=f"{document.name}: {command[:60]}")
    for document in DOCUMENTS
    if document.exists()
    for command in commands(document)
]


def make_targets() -> set[str]:
    """Targets that the Makefile defines."""
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize(("document", "command"), [case for case in CASES if re.search(r"\bmake\b", case.values[1])])
def test_documented_make_targets_exist(document: Path, command: str) -> None:
    """A reader who types a documented `make` line meets a target of that name."""
    words = shlex.split(command, comments=True)
    targets = [w for w in words[words.index("make") + 1 :] if "=" not in w and not w.startswith("-")]
    assert set(targets) <= make_targets(), document.name


PROGRAMS = {"memory": "memory", "memory-operator": "memory-operator", "memory-embedder": "memory-embedder"}


@pytest.mark.parametrize(
    ("document", "command"), [case for case in CASES if shlex.split(case.values[1], comments=True)[0] in PROGRAMS]
)
def test_documented_programs_know_their_options(document: Path, command: str) -> None:
    """Every sub-command and long option that a document uses appears in the program's own help."""
    words = shlex.split(command.split("|", maxsplit=1)[0].split(">", maxsplit=1)[0], comments=True)
    program = ROOT / ".venv" / "bin" / PROGRAMS[words[0]]
    path: list[str] = []
    for word in words[1:]:
        probe = subprocess.run([program, *path, word, "--help"], capture_output=True, text=True, check=False)
        if not re.fullmatch(r"[a-z][a-z-]*", word) or probe.returncode != 0:
            break
        path.append(word)
        if "COMMAND" not in probe.stdout.split("\n\n")[0] and "Commands" not in probe.stdout:
            break
    answer = subprocess.run(
        [program, *path, "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={"COLUMNS": "200", "PATH": "/usr/bin:/bin", "NO_COLOR": "1"},
    )
    unknown = [w.split("=")[0] for w in words if w.startswith("--") and w.split("=")[0] not in answer.stdout]
    assert not unknown, f"{document.name}: {' '.join([words[0], *path])} has no {unknown}"
