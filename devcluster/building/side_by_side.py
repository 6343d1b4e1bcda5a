"""Builds what a first run needs side by side: llama.cpp, the cluster's programs, and the base images.

Each of the three builds leaves a processor idle while it downloads, links or configures; building them at the same time
uses this time. On a machine with little memory they are built one after another.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from devcluster.errors import DevclusterError
from devcluster.progress import Reporter, Step, TimedLine

ENOUGH_MEMORY = 5 << 30  # bytes: a C++ compiler on every processor and Go's linker at the same time
_SAY_SECONDS = 60.0  # between two lines about what is left, where the output is no terminal
# What a step takes alone on two processors, in seconds. Only the text about what is left depends on it.
_SECONDS = {
    "Build llama-cpp-python": 420.0,
    "Build llama-cpp-python for this processor": 120.0,
    "Build kubernetes": 360.0,
    "Build helm": 45.0,
    "Build cnpg": 45.0,
}
_OTHER_SECONDS = 30.0


@dataclass(frozen=True)
class Lane:
    """A sequence of build steps, which the function `build` runs in order; `steps` holds the titles of the steps."""

    build: Callable[[Reporter], object]
    steps: tuple[str, ...]


def available_memory(meminfo: str) -> int:
    """Return the bytes of memory that programs can still get, from the text of /proc/meminfo."""
    line = next(line for line in meminfo.splitlines() if line.startswith("MemAvailable:"))
    return int(line.split()[1]) * 1024


def build_side_by_side(lanes: Sequence[Lane], *, memory: int, console: Console | None = None) -> None:
    """Run the lanes side by side if there are at least `ENOUGH_MEMORY` bytes of memory, else one after another.

    When a step fails, the other lanes end after their present step.

    Raises:
        DevclusterError: a step failed.
    """
    progress = _Progress(lanes, console or Console(stderr=True, highlight=False))
    with progress.shown(), ThreadPoolExecutor(len(lanes) if memory >= ENOUGH_MEMORY else 1) as pool:
        running = [pool.submit(lane.build, progress) for lane in lanes]
        done, _ = wait(running, return_when=FIRST_EXCEPTION)
        failed = [one.exception() for one in done if one.exception() is not None]
        progress.ending = bool(failed)
        wait(running)
    for error in failed:
        if error is not None:
            raise error


class _Progress:
    """A reporter for several steps at the same time; it also shows how many minutes are left."""

    def __init__(self, lanes: Sequence[Lane], console: Console) -> None:
        self.ending = False
        self._console = console
        self._lanes = lanes
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._running: list[TimedLine] = []
        self._finished: set[str] = set()

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Show the running steps until the block ends."""
        ended = threading.Event()
        if self._console.is_terminal:
            with Live(console=self._console, transient=True, refresh_per_second=4, get_renderable=self._draw):
                yield
            return
        teller = threading.Thread(target=self._tell, args=(ended,))
        teller.start()
        try:
            yield
        finally:
            ended.set()
            teller.join()

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Show a step until the block ends."""
        if self.ending:
            raise DevclusterError(f"{title} was not begun, because another step has failed")
        line = TimedLine(title)
        with self._lock:
            self._running.append(line)
        mark, style = "✗", "red"
        try:
            yield line
            mark, style = "✓", ""
        finally:
            with self._lock:
                self._running.remove(line)
                self._finished.add(title)
            self._console.print(Text(f"  {mark} {title}  {line.elapsed:.1f} s", style=style))

    def say(self, text: str) -> None:
        """Show a line of text."""
        self._console.print(Text(text))

    def _tell(self, ended: threading.Event) -> None:
        while not ended.wait(_SAY_SECONDS):
            titles = ", ".join(line.title for line in self._copy())
            self._console.print(Text(f"  … {self._left()}: {titles}"))

    def _draw(self) -> Group:
        return Group(*(line.__rich__() for line in self._copy()), Text(self._left()))

    def _copy(self) -> list[TimedLine]:
        with self._lock:
            return list(self._running)

    def _left(self) -> str:
        with self._lock:
            running = {line.title: line.elapsed for line in self._running}
            finished = set(self._finished)
        expected = {title for lane in self._lanes for title in lane.steps}
        return left(expected, running, finished, time.monotonic() - self._began)


def left(expected: AbstractSet[str], running: Mapping[str, float], finished: AbstractSet[str], seconds: float) -> str:
    """Return how much is done and about how many minutes are left, as a text.

    Args:
        expected: the titles of all steps.
        running: the seconds since the start of each step that runs, by title.
        finished: the titles of the steps that have ended.
        seconds: the seconds since the first step began, by which the machine's speed is estimated.
    """
    steps = {title: _SECONDS.get(title, _OTHER_SECONDS) for title in {*expected, *running, *finished}}
    done = sum(steps[title] for title in finished)
    done += sum(min(age / len(running), 0.95 * steps[title]) for title, age in running.items())
    minutes = (sum(steps.values()) - done) * seconds / max(done, 1.0) / 60
    return f"{len(finished)} of {len(steps)} steps done, about {max(1, round(minutes))} min left"
