"""What the documents tell a reader to type exists."""

import re
import shlex
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^ *```(?:console|bash|sh|shell)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


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
    return set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize(("document", "command"), [case for case in CASES if re.search(r"\bmake\b", case.values[1])])
def test_documented_make_targets_exist(document: Path, command: str) -> None:
    """A reader who types a documented `make` line meets a target of that name."""
    words = shlex.split(command, comments=True)
    targets = [w for w in words[words.index("make") + 1 :] if "=" not in w and not w.startswith("-")]
    assert set(targets) <= make_targets(), document.name


PROGRAMS = ("memory", "memory-operator", "memory-embedder")
MODULES = ("devcluster", "devcluster.demo", "memory_bench")
BIN = ROOT / ".venv" / "bin"


def program(words: list[str]) -> tuple[list[str | Path], list[str]] | None:
    """How to start the project's program that a command line uses, and the rest of the line; None for others'."""
    if words[0] in PROGRAMS:
        return [BIN / words[0]], words[1:]
    if words[:2] == ["python", "-m"] and words[2] in MODULES:
        return [BIN / "python", "-m", words[2]], words[3:]
    return None


def of_ours(command: str) -> bool:
    """Whether the command line starts one of the project's programs."""
    return program(shlex.split(command, comments=True)) is not None


@pytest.mark.parametrize(("document", "command"), [case for case in CASES if of_ours(case.values[1])])
def test_documented_programs_know_their_options(document: Path, command: str) -> None:
    """Every sub-command and long option that a document uses appears in the program's own help."""
    found = program(shlex.split(command.split("|", maxsplit=1)[0].split(">", maxsplit=1)[0], comments=True))
    assert found is not None
    start, words = found
    path: list[str] = []
    for word in words:
        probe = ask(*start, *path, word)
        if not re.fullmatch(r"[a-z][a-z-]*", word) or probe.returncode != 0:
            break
        path.append(word)
        if "COMMAND" not in probe.stdout.split("\n\n")[0] and "Commands" not in probe.stdout:
            break
    answer = ask(*start, *path)
    assert answer.returncode == 0, answer.stderr
    own = words[: words.index("--")] if "--" in words else words
    unknown = [w.split("=")[0] for w in own if w.startswith("--") and w.split("=")[0] not in answer.stdout]
    assert not unknown, f"{document.name}: {' '.join([str(start[-1]), *path])} has no {unknown}"


@cache
def ask(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """The program's help at that place."""
    environment = {"COLUMNS": "200", "PATH": "/usr/bin:/bin", "NO_COLOR": "1", "HOME": "/nonexistent"}
    environment["PYTHONPATH"] = f"{ROOT}:{ROOT / 'benchmarks'}"
    return subprocess.run([*command, "--help"], capture_output=True, text=True, check=False, env=environment, cwd=ROOT)
