"""What the documents tell a reader to type exists."""

import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

from docs.makers.references import commands as commands_page
from memory_bench.__main__ import app as benchmarks_app

ROOT = Path(__file__).parents[3]
BENCHMARKS = "python -m memory_bench"
PAGES = ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")
DOCUMENTS = sorted([*(ROOT / page for page in PAGES), *(ROOT / "docs").rglob("*.md")])
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


@pytest.mark.parametrize(("document", "command"), [case for case in CASES if "pip install" in case.values[1]])
def test_our_packages_are_installed_from_the_checkout(document: Path, command: str) -> None:
    """None is published, so another package of the name would be installed, or nothing."""
    names = {"memory-recall", "memory-operator", "memory-embedder"}
    assert not names & set(re.findall(r"[\w-]+", command)), document.name
    folders = [word.split("[")[0] for word in shlex.split(command) if word.startswith("./")]
    assert all((ROOT / folder / "pyproject.toml").exists() for folder in folders)


@pytest.mark.parametrize(
    ("document", "command"), [case for case in CASES if "memory-index.dev/allowed-namespaces=" in case.values[1]]
)
def test_no_documented_command_withdraws_the_consent_of_other_namespaces(document: Path, command: str) -> None:
    """The annotation of a shared Cluster is a list; a command that overwrites it writes the whole of it."""
    written = command.partition("memory-index.dev/allowed-namespaces=")[2].split()[0].strip('"')
    assert "--overwrite" not in command or written == "$ALLOWED" or "," in written, document.name


def make_targets() -> set[str]:
    """Targets that the Makefile defines."""
    return set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize(("document", "command"), [case for case in CASES if re.search(r"\bmake\b", case.values[1])])
def test_documented_make_targets_exist(document: Path, command: str) -> None:
    """A reader who types a documented `make` line meets a target of that name."""
    words = shlex.split(command, comments=True)
    targets = [w for w in words[words.index("make") + 1 :] if "=" not in w and not w.startswith("-")]
    assert set(targets) <= make_targets(), document.name


@cache
def programs() -> dict[str, Any]:
    """The command line of each of our programs, by the text that starts it."""
    return {name: get_command(app) for name, app in (*commands_page.programs().items(), (BENCHMARKS, benchmarks_app))}


def divided(command: str) -> tuple[str, list[str]] | None:
    """Return which of our programs a command line starts, and its words up to a pipe; None if it starts none."""
    text = command.split("|", maxsplit=1)[0].split(">", maxsplit=1)[0]
    words = shlex.split(text, comments=True)
    for length in (1, 3):
        name = " ".join(words[:length])
        if name in programs():
            return name, words[length:]
    return None


@pytest.mark.parametrize(("document", "command"), [case for case in CASES if divided(case.values[1])])
def test_documented_programs_know_their_options(document: Path, command: str) -> None:
    """Every sub-command and long option that a document uses is one of the program's own."""
    found = divided(command)
    assert found is not None
    name, words = found
    parsed = programs()[name]
    for word in words:
        if not hasattr(parsed, "get_command") or word.startswith("-"):
            break
        below = parsed.get_command(typer.Context(parsed), word)
        assert below is not None, f"{document.name}: {name} has no command {word}"
        parsed, name = below, f"{name} {word}"
    known = {"--help", *(option for one in parsed.params for option in (*one.opts, *one.secondary_opts))}
    own = words[: words.index("--")] if "--" in words else words
    used = {word.split("=")[0] for word in own if word.startswith("--")}
    assert used <= known, f"{document.name}: {name} has no {sorted(used - known)}"
