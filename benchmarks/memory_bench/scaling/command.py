"""The command `scaling`: simulates a day of load with the operator's own scaling decision, and draws a chart."""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from memory_bench.report import KeepOption, OutputOption, chart, results_directory
from memory_bench.scaling.day import DAY_SECONDS, STEP_SECONDS, Arrivals, arrivals
from memory_bench.scaling.simulation import MAX_REPLICAS, TARGET_SECONDS, Moment, Simulation


def figures(day: Sequence[Moment]) -> dict[str, Any]:
    """Return the day's main figures; `over_target_s` is the longest time for which the queue was above its target."""
    return {
        "changes": sum(before.wanted != after.wanted for before, after in pairwise(day)),
        "most_pods": max(moment.wanted for moment in day),
        "hours_at_zero": round(sum(moment.wanted == 0 for moment in day) * STEP_SECONDS / 3600, 1),
        "over_target_s": longest(day, lambda moment: moment.queue_seconds > TARGET_SECONDS),
        "without_a_pod_s": longest(day, lambda moment: moment.missed_queries > 0 and moment.ready == 0),
        "queries_by_words_alone": sum(moment.missed_queries for moment in day),
        "pod_hours": round(sum(moment.wanted for moment in day) * STEP_SECONDS / 3600, 1),
    }


def longest(day: Sequence[Moment], holds: Any) -> int:  # noqa: ANN401  (a predicate over a moment)
    """Return the longest uninterrupted time for which the predicate `holds` was true, in seconds."""
    most = present = 0
    for moment in day:
        present = present + STEP_SECONDS if holds(moment) else 0
        most = max(most, present)
    return most


def scaling(output: OutputOption = None, keep: KeepOption = False) -> None:
    """Simulate a day of load with the operator's own scaling decision, and draw a chart; this takes seconds.

    Example: python -m memory_bench scaling
    """
    arrived = arrivals()
    day = Simulation().run(arrived)
    _draw(results_directory("scaling", output, keep=keep) / "day.svg", arrived, day)
    print(json.dumps(figures(day)))


def _draw(path: Path, arrived: Sequence[Arrivals], day: Sequence[Moment]) -> None:
    every = 12  # steps to a point, so that the chart stays small
    hours = [moment.second / 3600 for moment in day[::every]]

    def worst(values: Sequence[float]) -> list[float]:
        return [max(values[start : start + every]) for start in range(0, len(values), every)]

    with chart(path, rows=4, size=(10, 8)) as (load, rows, queue, pods):
        load.plot(hours, worst([one.queries / STEP_SECONDS for one in arrived]), color="#3b6ea5", linewidth=0.8)
        load.set(ylabel="queries a second", yscale="symlog", title="A day of load, and the operator's scaling")
        rows.plot(hours, worst([float(one.pending_rows) for one in day]), color="#e6a23c")
        rows.set(ylabel="pending rows", yscale="symlog")
        queue.plot(hours, worst([one.queue_seconds for one in day]), color="#d1495b", linewidth=0.8)
        queue.axhline(TARGET_SECONDS, color="#333333", linestyle=":", label="targetQueueSeconds")
        queue.set(ylabel="seconds of queue")
        queue.legend(loc="upper left")
        pods.step(hours, worst([float(one.wanted) for one in day]), color="#3b6ea5", where="post", label="wanted")
        pods.step(hours, [one.ready for one in day[::every]], color="#9aa5b1", where="post", label="ready")
        pods.axhline(MAX_REPLICAS, color="#333333", linestyle=":", label="maxReplicas")
        pods.set(ylabel="pods", xlabel="hour of the day", xlim=(0, DAY_SECONDS / 3600))
        pods.legend(loc="upper left", ncols=3)
