"""Progress of long steps: a live line with the elapsed time on a terminal, one finished line each elsewhere."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text


class Step(Protocol):
    """A running step with a note of what it is doing."""

    def note(self, text: str) -> None:
        """Replace the step's note."""


class Reporter(Protocol):
    """A display of the steps of a command."""

    def step(self, title: str) -> AbstractContextManager[Step]:
        """Show a step for as long as the block runs."""

    def say(self, text: str) -> None:
        """Show a line."""


class _Line:
    def __init__(self, title: str) -> None:
        self.title = title
        self.remark = ""
        self.started = time.monotonic()

    def note(self, text: str) -> None:
        self.remark = text

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.started

    def __rich__(self) -> Text:
        remark = f"  {self.remark[:80]}" if self.remark else ""
        return Text(f"{self.title}  {self.elapsed:.0f} s{remark}")


class ConsoleReporter:
    """A reporter on standard error; standard output is for results."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Show a step while it runs, and its duration when it has ended."""
        line = _Line(title)
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
        """Show a line."""
        self._console.print(Text(text))


class SilentReporter:
    """A reporter that shows nothing, for callers with a display of their own."""

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Run the block without a display."""
        yield _Line(title)

    def say(self, text: str) -> None:
        """Drop the line."""


class _Spinning:
    def __init__(self, line: _Line) -> None:
        self._line = line
        self._spinner = Spinner("dots")

    def __rich__(self) -> Spinner:
        self._spinner.update(text=self._line.__rich__())
        return self._spinner
