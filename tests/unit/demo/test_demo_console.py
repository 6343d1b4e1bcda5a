"""The demo's progress in a log: a step is announced, ended with its time and result, or marked as failed."""

from io import StringIO

import pytest
from rich.console import Console

from devcluster.demo.console import DemoConsole, duration_text


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def output() -> StringIO:
    return StringIO()


@pytest.fixture
def console(clock: Clock, output: StringIO) -> DemoConsole:
    return DemoConsole(Console(file=output, width=120), clock)


def test_a_step_ends_with_its_time_and_result(console: DemoConsole, clock: Clock, output: StringIO) -> None:
    with console.step("Build [the] index") as step:
        clock.now = 4.2
        step.result = "valid"
    assert output.getvalue().splitlines() == ["  … Build [the] index", "  ✓ Build [the] index  4.2 s  valid"]


def test_a_failed_step_is_marked_and_its_error_is_raised(console: DemoConsole, output: StringIO) -> None:
    with pytest.raises(ValueError, match="boom"), console.step("Import"):
        raise ValueError("boom")
    assert "✗ Import" in output.getvalue()


def test_progress_notes_are_logged_at_intervals(console: DemoConsole, clock: Clock, output: StringIO) -> None:
    with console.step("Embed") as step:
        for second in range(25):
            clock.now = float(second)
            step.note(f"{second} rows")
    assert [line.strip() for line in output.getvalue().splitlines()[1:-1]] == ["10 rows", "20 rows"]


@pytest.mark.parametrize(("seconds", "text"), [(4.25, "4.2 s"), (59.9, "59.9 s"), (65, "1 min 05 s")])
def test_durations_are_formatted_for_people(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
