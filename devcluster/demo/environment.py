"""The interface of an environment in which the demo runs.

An environment can run the `memory` program against its store, ask the database directly (so that a claim about the data
is never checked with the software that makes it), and bring an index to the store in its own way.
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
    """The demo cannot go on; the message names what failed and, where known, what to do."""


@dataclass(frozen=True)
class Completed:
    """Exit status and output of a program."""

    code: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class Speed:
    """Rows and tokens per second; speeds are compared by tokens, since rows differ in length."""

    rows: float
    tokens: float

    @classmethod
    def of(cls, report: Mapping[str, Any], rows: str) -> "Speed":
        """Read the speed from a report of `memory backfill`; `rows` is the key of its number of rows."""
        seconds = float(report["seconds"])
        return cls(float(report[rows]) / seconds, float(report["tokens"]) / seconds)


class DemoEnvironment(Protocol):
    """An environment with a store of memories that can get an index."""

    driver: str | None

    def run(self, arguments: Sequence[str], stdin: str | None = None) -> Completed:
        """Run a program of the operator image beside the store."""

    def sql(self, statement: str) -> str:
        """Run a query on the database and return its rows unaligned, without headings."""

    def bring_index(self, console: DemoConsole) -> None:
        """Give every row that may have a vector one, build the index, and report the progress."""

    def backfill_speed(self) -> Speed | None:
        """Return the speed that the backfill reported at its end, if it did."""


def memory(
    environment: DemoEnvironment, *arguments: str, stdin: str | None = None, accept: Collection[int] = (0,)
) -> dict[str, Any]:
    """Run `memory ... --json` and return its answer.

    Raises:
        DemoError: its exit status is not one of `accept`; the message has the end of its output.
    """
    done = environment.run(("memory", *arguments, "--json"), stdin)
    if done.code not in accept:
        said = "\n".join((done.stderr or done.stdout).strip().splitlines()[-ERROR_LINES:])
        raise DemoError(f"`memory {' '.join(arguments)}` ended with status {done.code}:\n{said}")
    return last_object(done.stdout)


def last_object(text: str, having: str | None = None) -> dict[str, Any]:
    """Return the last JSON object of a program's output, on one line or several; empty if there is none.

    With `having`, the last one that has this key: a pod's log carries JSON log lines beside the program's answer.
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
