"""Functions that all benchmarks use for their results: tables, charts, JSON files, and facts about the machine.

Results have two parts. Summaries, reports and charts are kept in the repository. The results of single questions and
single measurements go to a folder `raw` beside them, which git ignores because the benchmark can produce them again.
"""

import json
import os
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

console = Console(stderr=True, highlight=False)
RAW = "raw"


def machine() -> dict[str, object]:
    """Return the operating system, processor count, architecture and Python version of this machine."""
    return {
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
    }


def now() -> str:
    """Return the present time in UTC as ISO 8601 text, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def write_json(path: Path, value: object) -> None:
    """Write a value to a JSON file, and create the file's parent directories if they are missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def markdown_table(rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table whose first row is the heading; all columns but the first are aligned to the right."""
    heading, *others = rows
    ruler = ["---", *["---:"] * (len(heading) - 1)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (heading, ruler, *others))


@contextmanager
def chart(path: Path, *, rows: int = 1, columns: int = 1, size: tuple[float, float]) -> Iterator[Any]:
    """Yield the axes of a new matplotlib figure of `size` inches, and write the figure to `path` when the block ends.

    With one row and one column the yielded value is a single `Axes`, otherwise an array of them. Axes in one column
    share their x axis.
    """
    import matplotlib as mpl

    mpl.use("Agg")  # no display is needed, nor looked for
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", sharex=rows > 1)
    try:
        yield axes
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110, metadata={"Date": None} if path.suffix == ".svg" else None)
    finally:
        plt.close(figure)


def grouped_bars(axes: Any, groups: Sequence[str], series: Mapping[str, Sequence[float]]) -> None:  # noqa: ANN401  (axes of matplotlib, which is imported only where a chart is drawn)
    """Draw a bar chart with one bar for each series in each group; each group's name stands below its bars."""
    width = 0.8 / len(series)
    for place, (name, heights) in enumerate(series.items()):
        offset = (place - (len(series) - 1) / 2) * width
        axes.bar([group + offset for group in range(len(groups))], heights, width, label=name)
    axes.set_xticks(range(len(groups)), groups)
