"""The environment in which the other programs run, and how each writes a memory: `write` is its own, unchanged."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from devcluster.settings import REPOSITORY, Settings
from tests.support.locked_environment import locked_environment

_LOCK = REPOSITORY / "requirements" / "adopted-stores.txt"
_WRITER = Path(__file__).with_name("writer.py")
_SECONDS = 300.0


@dataclass(frozen=True)
class Program:
    """A program with a store of its own: its name in `writer.py`, and its table."""

    name: str
    table: str


PROGRAMS = (
    Program("mem0", "mem0"),
    Program("langchain", "langchain_pg_embedding"),
    Program("langchain-table", "langchain_notes"),
    Program("llamaindex", "data_llamaindex"),
)


def environment(settings: Settings) -> Path:
    """Return the interpreter of a virtual environment with the locked packages; it is made if it is missing."""
    return locked_environment(settings, "adopted-stores", _LOCK)


def write(python: Path, program: Program, dsn: str, embedder: str, texts: list[str]) -> str:
    """Have a program write texts, and return the text that its own search finds for the first of them.

    Raises:
        RuntimeError: the program failed; the message has what it said.
    """
    command = [str(python), str(_WRITER), program.name, dsn, embedder, *texts]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{program.name} failed: {done.stderr[-2000:]}")
    return done.stdout.strip().splitlines()[-1]
