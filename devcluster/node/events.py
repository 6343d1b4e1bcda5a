"""The events of a node's start: the init process writes them as JSON lines, and the launching process reads them."""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["started", "ready", "died", "restarted", "failed", "up"]


@dataclass(frozen=True)
class Event:
    """An event of one component or, if `component` is empty, of the whole node."""

    kind: Kind
    component: str = ""
    seconds: float = 0.0
    detail: str = ""


class EventLog:
    """A file of events; each event is appended with one write, so that a reader never sees half a line."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._started = time.monotonic()

    def add(self, kind: Kind, component: str = "", detail: str = "") -> None:
        """Append an event with the seconds since this log was opened."""
        event = Event(kind, component, round(time.monotonic() - self._started, 2), detail)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(event)) + "\n")


def read(path: Path, offset: int) -> tuple[list[Event], int]:
    """Read the events after a byte offset; return them and the offset after the last one."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read()
    except FileNotFoundError:
        return [], offset
    complete = data[: data.rfind(b"\n") + 1]
    return [Event(**json.loads(line)) for line in complete.splitlines()], offset + len(complete)


def log_tail(path: Path, lines: int = 20) -> str:
    """Return the last lines of a log, or "" if it cannot be read."""
    try:
        return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
    except OSError:
        return ""
