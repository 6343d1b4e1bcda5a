"""The interface of an environment in which the demo runs.

An environment runs the `memory` program against its store, queries the database directly, and creates the index of the
store. The direct queries check what the `memory` program claims about the data.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from devcluster.demo.console import DemoConsole

MODEL = "all-MiniLM-L6-v2"
DIMENSIONS = 384
EXTENSION_MISSING = 3  # exit status of `memory migrate` while pgvector is absent
ERROR_LINES = 12


class DemoError(Exception):
    """The demo cannot continue; the message names what failed and, where known, the remedy."""


@dataclass(frozen=True)
class Completed:
    """Exit status and output of a program that has ended."""

    code: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Speed:
    """A speed in rows and in tokens per second; speeds are compared by tokens, since rows differ in length."""

    rows: float
    tokens: float

    @classmethod
    def from_report(cls, report: Mapping[str, Any], rows: str) -> "Speed":
        """Compute the speed from a report of `memory backfill`; `rows` is the report's key for the number of rows."""
        seconds = float(report["seconds"])
        return cls(float(report[rows]) / seconds, float(report["tokens"]) / seconds)


class DemoEnvironment(Protocol):
    """A store of memories without an index, and the means to create the index."""

    driver: str | None

    def run(self, arguments: Sequence[str], stdin: str | None = None) -> Completed:
        """Run a program of the operator image against the store, with `stdin` as its input."""

    def sql(self, statement: str) -> str:
        """Run an SQL query on the database and return its rows as unaligned text, without headings."""

    def create_index(self, console: DemoConsole) -> None:
        """Embed every row that may have a vector, build the HNSW index, and show the progress."""

    def backfill_speed(self) -> Speed | None:
        """Return the speed that the backfill reported at its end, or None if it reported none."""


def memory(
    environment: DemoEnvironment, *arguments: str, stdin: str | None = None, accept: Collection[int] = (0,)
) -> dict[str, Any]:
    """Run `memory ... --json` and return the JSON object that it prints.

    Raises:
        DemoError: the exit status is not in `accept`; the message contains the end of the program's output.
    """
    done = environment.run(("memory", *arguments, "--json"), stdin)
    if done.code not in accept:
        said = "\n".join((done.stderr or done.stdout).strip().splitlines()[-ERROR_LINES:])
        raise DemoError(f"`memory {' '.join(arguments)}` ended with status {done.code}:\n{said}")
    return last_object(done.stdout)


def last_object(text: str, having: str | None = None) -> dict[str, Any]:
    """Return the last JSON object of a program's output, on one line or several, or {} if there is none.

    With `having`, only objects that have this key count, because a pod's log also contains JSON log lines.
    """
    lines = text.strip().splitlines()
    for start in range(len(lines) - 1, -1, -1):
        if not lines[start].startswith("{"):
            continue
        for end in (start + 1, len(lines)):
            found = _object("\n".join(lines[start:end]))
            if found and (having is None or having in found):
                return found
    return {}


def _object(text: str) -> dict[str, Any] | None:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None
