"""Shows the progress of the demo on stderr: named steps with the time they took, on a terminal and in a log.

On a terminal a running step is one line that is updated. In a log a step writes one line when it begins and one when it
ends. Between these, it writes its changed note at most once in some seconds. Only the final JSON object goes to stdout.
A console is also a `devcluster.progress.Reporter`, so that the steps of starting a cluster look the same.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table

LOG_INTERVAL = 10.0
Clock = Callable[[], float]


def duration_text(seconds: float) -> str:
    """Format a duration in seconds as text, such as "4.2 s" or "1 min 05 s"."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s"


class Step:
    """A running step of the demo, with a note about its progress. After the end it has a result."""

    def __init__(self, title: str, console: Console, clock: Clock) -> None:
        self.title = title
        self.result = ""
        self.extra: RenderableType | None = None
        self._console = console
        self._clock = clock
        self._began = clock()
        self._note = ""
        self._fraction: float | None = None
        self._logged_at = self._began
        self._spinner = Spinner("dots")

    @property
    def elapsed(self) -> float:
        """Seconds since the step began."""
        return self._clock() - self._began

    def note(self, text: str, *, fraction: float | None = None, now: bool = False) -> None:
        """Set the step's note; a log leaves out notes that follow too soon after another, unless `now` is set."""
        changed, self._note, self._fraction = text != self._note, text, fraction
        due = now or self._clock() - self._logged_at >= LOG_INTERVAL
        if changed and due and not self._console.is_terminal:
            self._logged_at = self._clock()
            self._console.print(f"    {text}", markup=False, highlight=False)

    def __rich__(self) -> RenderableType:
        """Return what a terminal shows of the step."""
        line = Table.grid(padding=(0, 1))
        cells: list[RenderableType] = [self._spinner, escape(self.title), f"[dim]{duration_text(self.elapsed)}[/]"]
        if self._fraction is not None:
            cells.append(ProgressBar(total=1.0, completed=min(1.0, self._fraction), width=30))
        line.add_row(*cells, f"[dim]{escape(self._note)}[/]")
        if self.extra is None:
            return line
        block = Table.grid()
        block.add_row(line)
        block.add_row(self.extra)
        return block


class DemoConsole:
    """The console on which the demo shows its steps."""

    def __init__(self, console: Console, clock: Clock = time.monotonic) -> None:
        self.console = console
        self._clock = clock
        self._began = clock()

    @property
    def elapsed(self) -> float:
        """Seconds since the demo began."""
        return self._clock() - self._began

    def say(self, text: str) -> None:
        """Write a line between steps."""
        self.console.print(text, markup=False, highlight=False)

    def show(self, renderable: RenderableType) -> None:
        """Show a table or panel between steps."""
        self.console.print(renderable)

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Show a step while the block runs, then its success or failure and its duration."""
        step = Step(title, self.console, self._clock)
        if not self.console.is_terminal:
            self.console.print(f"  … {title}", markup=False, highlight=False)
        try:
            if self.console.is_terminal:
                with Live(step, console=self.console, refresh_per_second=8, transient=True):
                    yield step
            else:
                yield step
        except BaseException:
            self._ended("[red]✗[/]", step)
            raise
        self._ended("[green]✓[/]", step)

    def _ended(self, mark: str, step: Step) -> None:
        result = f"  [dim]{escape(step.result)}[/]" if step.result else ""
        elapsed = f"[cyan]{duration_text(step.elapsed)}[/]"
        self.console.print(f"  {mark} {escape(step.title)}  {elapsed}{result}", highlight=False)
