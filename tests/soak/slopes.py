"""Whether what a system holds grows without end: memory, files, connections, tasks, slots, dead rows."""

from collections.abc import Mapping, Sequence
from statistics import median

Series = Sequence[tuple[float, float]]
_LEAST_SAMPLES = 12
_LEAST_SECONDS = 600.0
_GROWTH = 1.3


def growing(series: Mapping[str, Series], slack: Mapping[str, float]) -> list[str]:
    """Return the names of the series that grow, each with its levels.

    A series is pairs of seconds and values. Its level is the median of a third of its samples; it grows if its last
    level is more than 1.3 times its first one and its middle one is not above its last. Faults begin before the first
    third ends, so that what a fault takes for a while stands in all thirds. Growth by less than the `slack` of its name
    counts as none, and so does a series with fewer than twelve samples or of less than ten minutes: dead rows are
    removed once a minute, later where a statement still sees them, and a process needs minutes until it holds all that
    it uses.
    """
    found = []
    for name, samples in series.items():
        moments = [moment for moment, _ in samples]
        if len(samples) < _LEAST_SAMPLES or max(moments) - min(moments) < _LEAST_SECONDS:
            continue
        values = [value for _, value in sorted(samples)]
        third = len(values) // 3
        levels = median(values[:third]), median(values[third:-third]), median(values[-third:])
        least = next((room for key, room in slack.items() if name.startswith(key)), 0.0)
        if levels[2] > max(levels[0] * _GROWTH, levels[0] + least) and levels[1] <= levels[2]:
            found.append(f"{name}: {levels[0]:.0f}, {levels[1]:.0f}, {levels[2]:.0f}")
    return found
