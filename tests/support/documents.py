"""The command lines in the shell blocks of documents, and what of them a program does not know."""

import re
import shlex
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any

import typer

ROOT = Path(__file__).parents[2]
_PAGES = ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")
DOCUMENTS = sorted([*(ROOT / page for page in _PAGES), *(ROOT / "docs").rglob("*.md")])
_FENCE = re.compile(r"^ *```(?:console|bash|sh|shell)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


def commands(document: Path) -> list[str]:
    """Return the command lines of a document's shell blocks, continuation lines joined, prompts removed."""
    lines: list[str] = []
    for block in _FENCE.findall(document.read_text()):
        for line in block.replace("\\\n", " ").splitlines():
            text = line.strip().removeprefix("$ ")
            if text and not text.startswith("#"):
                lines.append(text)
    return lines


def documented() -> list[tuple[Path, str]]:
    """Return every command line with the document that it is in."""
    return [(document, command) for document in DOCUMENTS if document.exists() for command in commands(document)]


def divided(command: str, programs: Mapping[str, Any]) -> tuple[str, list[str]] | None:
    """Return which of the programs a command line starts, and its words up to a pipe; None if it starts none."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|>")
    lexer.whitespace_split = True
    words = list(takewhile(lambda word: not set(word) <= {"|", ">"}, lexer))
    for length in (1, 3):
        name = " ".join(words[:length])
        if name in programs:
            return name, words[length:]
    return None


def require_known(name: str, words: list[str], program: Any) -> None:
    """Check that every sub-command and long option among the words is one of the program's own."""
    for word in words:
        if not hasattr(program, "get_command") or word.startswith("-"):
            break
        below = program.get_command(typer.Context(program), word)
        assert below is not None, f"{name} has no command {word}"
        program, name = below, f"{name} {word}"
    known = {"--help", *(option for one in program.params for option in (*one.opts, *one.secondary_opts))}
    own = words[: words.index("--")] if "--" in words else words
    used = {word.split("=")[0] for word in own if word.startswith("--")}
    assert used <= known, f"{name} has no {sorted(used - known)}"
