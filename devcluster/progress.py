"""Shows the progress of long steps.

A terminal gets a live line with the elapsed time. Any other output gets one line when a step ends.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text


class Step(Protocol):
    """A running step, with a note about what it is doing."""

    def note(self, text: str) -> None:
        """Replace the step's note."""


class Reporter(Protocol):
    """The interface of a progress display, which shows the steps of a command."""

    def step(self, title: str) -> AbstractContextManager[Step]:
        """Show a step until the block ends."""

    def say(self, text: str) -> None:
        """Show a line of text."""


class TimedLine:
    """A running step as one line of text: its title, the seconds since its start, and its note."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.remark = ""
        self.started = time.monotonic()

    def note(self, text: str) -> None:
        """Replace the step's note."""
        self.remark = text

    @property
    def elapsed(self) -> float:
        """Seconds since the step began."""
        return time.monotonic() - self.started

    def __rich__(self) -> Text:
        remark = f"  {self.remark[:80]}" if self.remark else ""
        return Text(f"{self.title}  {self.elapsed:.0f} s{remark}")


class ConsoleReporter:
    """A reporter that writes to standard error, since standard output is for results."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Show a step while the block runs, and its duration when the block has ended."""
        line = TimedLine(title)
        try:
            if self._console.is_terminal:
                with Live(_Spinning(line), console=self._console, transient=True, refresh_per_second=8):
                    yield line
            else:
                yield line
        except BaseException:
            self._console.print(Text(f"  ✗ {title}  {line.elapsed:.1f} s", style="red"))
            raise
        self._console.print(Text(f"  ✓ {title}  {line.elapsed:.1f} s  {line.remark}".rstrip()))

    def say(self, text: str) -> None:
        """Show a line of text."""
        self._console.print(Text(text))


class SilentReporter:
    """A reporter that shows nothing, for callers that show progress themselves."""

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Run the block without showing anything."""
        yield TimedLine(title)

    def say(self, text: str) -> None:
        """Show nothing."""


class _Spinning:
    def __init__(self, line: TimedLine) -> None:
        self._line = line
        self._spinner = Spinner("dots")

    def __rich__(self) -> Spinner:
        self._spinner.update(text=self._line.__rich__())
        return self._spinner
