"""The longest time for which the operator's event loop stood still is measured and exported."""

import pytest

from memory_operator.controller.loop_pauses import WINDOW_SECONDS, LoopPauses
from memory_operator.controller.metrics import Metrics

pytestmark = pytest.mark.finding("security S2")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def run(pauses: LoopPauses, clock: Clock, *seconds: float) -> None:
    """Let the event loop run, and stand still for so many seconds each time."""
    for pause in seconds:
        pauses.wake_up()
        clock.now += 0.05 + pause
    pauses.wake_up()


def test_the_longest_pause_counts_for_five_minutes(clock: Clock) -> None:
    pauses = LoopPauses(clock)
    run(pauses, clock, 0.0, 2.0, 0.5, 1.0)
    assert pauses.longest() == pytest.approx(2.0)
    clock.now += WINDOW_SECONDS - 1.2
    pauses = _woken(pauses, clock)
    assert pauses.longest() > 200, "nothing woke up in between"


def _woken(pauses: LoopPauses, clock: Clock) -> LoopPauses:
    pauses.wake_up()
    clock.now += 0.05
    return pauses


def test_a_pause_is_forgotten_after_five_minutes_and_then_the_next_longest_counts(clock: Clock) -> None:
    pauses = LoopPauses(clock)
    run(pauses, clock, 2.0, 1.0)
    run(pauses, clock, *(0.0 for _ in range(int((WINDOW_SECONDS - 0.5) / 0.05))))
    assert pauses.longest() == pytest.approx(1.0)
    run(pauses, clock, *(0.0 for _ in range(40)))
    assert pauses.longest() == pytest.approx(0.0, abs=1e-6)


def test_a_pause_that_has_not_ended_is_told_to_the_thread_that_serves_the_metrics(clock: Clock) -> None:
    pauses, metrics = LoopPauses(clock), Metrics()
    assert pauses.longest() == 0.0, "it has not begun"
    run(pauses, clock, 0.0)
    metrics.loop_pause.set_function(pauses.longest)
    clock.now += 60.05
    assert metrics.registry.get_sample_value("memory_operator_event_loop_pause_seconds") == pytest.approx(60.0)


def test_the_processor_time_of_a_pause_tells_a_busy_loop_from_a_node_without_a_processor(clock: Clock) -> None:
    """A pause of two seconds took half a second of the processor; one of a minute took none."""
    processor, metrics = Clock(), Metrics()
    pauses = LoopPauses(clock, processor)
    metrics.loop_busy.set_function(pauses.busiest)
    assert pauses.busiest() == 0.0, "it has not begun"
    pauses.wake_up()
    for seconds, busy in ((2.0, 0.5), (60.0, 0.0)):
        clock.now += seconds
        processor.now += busy
        pauses.wake_up()
    assert pauses.longest() == pytest.approx(59.95)
    assert metrics.registry.get_sample_value("memory_operator_event_loop_busy_seconds") == pytest.approx(0.5)
    run(pauses, clock, *(0.0 for _ in range(int(WINDOW_SECONDS / 0.05) + 2)))
    assert pauses.busiest() == 0.0, "after five minutes it is forgotten"


def test_the_loop_runs_from_its_first_turn_until_it_has_stood_still_for_ten_seconds(clock: Clock) -> None:
    """The kubelet asks for it, and ends a process whose loop stands still for three probes."""
    pauses = LoopPauses(clock, Clock())
    assert not pauses.runs()
    pauses.wake_up()
    clock.now += 9.0
    assert pauses.runs()
    clock.now += 2.0
    assert not pauses.runs()
    pauses.wake_up()
    assert pauses.runs()
