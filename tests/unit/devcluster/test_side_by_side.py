"""What a first run builds side by side: order, failures, and the text about what is left."""

import io
import threading

import pytest
from rich.console import Console

from devcluster.building.side_by_side import ENOUGH_MEMORY, Lane, available_memory, build_side_by_side, left
from devcluster.errors import DevclusterError
from devcluster.progress import Reporter


def console() -> Console:
    return Console(file=io.StringIO(), width=200)


def test_lanes_run_at_the_same_time_where_there_is_memory() -> None:
    """Each of two lanes waits within a step for the other to arrive there."""
    both = threading.Barrier(2, timeout=10)

    def build(reporter: Reporter, title: str) -> None:
        with reporter.step(title):
            both.wait()

    shown = console()
    lanes = [Lane(lambda reporter, title=title: build(reporter, title), (title,)) for title in ("one", "two")]
    build_side_by_side(lanes, memory=ENOUGH_MEMORY, console=shown)
    text = shown.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
    assert "✓ one" in text
    assert "✓ two" in text


def test_lanes_run_one_after_another_where_memory_is_little() -> None:
    """The second lane begins when the first has ended."""
    seen: list[str] = []

    def build(name: str) -> None:
        seen.append(f"{name} begins")
        threading.Event().wait(0.05)
        seen.append(f"{name} ends")

    lanes = [Lane(lambda _, name=name: build(name), ()) for name in ("one", "two")]
    build_side_by_side(lanes, memory=ENOUGH_MEMORY - 1, console=console())
    assert seen == ["one begins", "one ends", "two begins", "two ends"]


def test_a_failed_step_ends_the_other_lanes_after_their_present_step() -> None:
    """What is under way is finished, nothing new is begun, and the failure is what the caller gets."""
    begun, ended = threading.Event(), threading.Event()

    def fails(reporter: Reporter) -> None:
        with reporter.step("fails"):
            begun.wait(10)
            raise DevclusterError("no compiler")

    def goes_on(reporter: Reporter) -> None:
        try:
            while True:
                with reporter.step("another"):
                    begun.set()
                    threading.Event().wait(0.01)
        finally:
            ended.set()

    with pytest.raises(DevclusterError, match="no compiler"):
        build_side_by_side([Lane(fails, ()), Lane(goes_on, ())], memory=ENOUGH_MEMORY, console=console())
    assert ended.is_set()


def test_what_is_left_is_judged_by_the_speed_so_far() -> None:
    """The machine took 840 s for a step that takes 420; 360 s of steps are left, so 720 s or 12 minutes."""
    expected = {"Build llama-cpp-python", "Build kubernetes"}
    assert left(expected, {}, {"Build llama-cpp-python"}, 840.0) == "1 of 2 steps done, about 12 min left"
    assert left(expected, {}, expected, 840.0).startswith("2 of 2")


def test_memory_is_read_as_the_kernel_writes_it() -> None:
    """/proc/meminfo counts in units of 1,024 bytes."""
    assert available_memory("MemTotal:  9 kB\nMemAvailable:   2048 kB\n") == 2 << 20
