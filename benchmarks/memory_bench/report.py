"""Functions that all benchmarks use for their results: tables, charts, JSON files, and facts about the machine.

Results have two parts: summaries, reports and charts, and beside them a folder `raw` with the results of single
questions and single measurements. Both are written to `build/benchmarks`, which git ignores, so that no run changes a
tracked file; `memory_bench.kept` writes what the repository keeps of them. Files with results of single texts are
readable only by their owner.
"""

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer
from rich.console import Console

from memory_recall.private_file import create_private_file

console = Console(stderr=True, highlight=False)
RAW = "raw"
_COLOURS = 64  # of a PNG
REPOSITORY = Path(__file__).resolve().parents[2]

OutputOption = Annotated[
    Path | None, typer.Option(help="The directory of the results; default: build/benchmarks/<benchmark>.")
]


def results_directory(benchmark: str, output: Path | None) -> Path:
    """Return the directory of a benchmark's results: `output` if it is given, else the one that git ignores."""
    return output or REPOSITORY / "build" / "benchmarks" / benchmark


def machine() -> dict[str, object]:
    """Return the operating system, processor count, architecture and Python version of this machine."""
    return {
        "system": platform.platform(),
        "processors": os.cpu_count(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
    }


def commit() -> dict[str, object] | None:
    """Return the commit of the working tree and whether the tree differs from it, or None outside a git clone."""
    head, status = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "--untracked-files=no")
    return None if head is None or status is None else {"id": head, "changed": bool(status)}


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(REPOSITORY), *arguments], capture_output=True, text=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def now() -> str:
    """Return the present time in UTC as ISO 8601 text, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def write_json(path: Path, value: object) -> None:
    """Write a value to a JSON file, and create the file's parent directories if they are missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_json(value), encoding="utf-8")


def write_private_json(path: Path, value: object) -> None:
    """Write a value to a JSON file that only its owner may read, and create missing parent directories."""
    with create_private(path) as file:
        file.write(_json(value).encode())


def create_private(path: Path) -> BinaryIO:
    """Open a new file with mode 0600 for writing, in place of an existing one; missing parents are created."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    return create_private_file(path)


def _json(value: object) -> str:
    return json.dumps(value, indent=1) + "\n"


def markdown_table(rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table whose first row is the heading; all columns but the first are aligned to the right."""
    heading, *others = rows
    ruler = ["---", *["---:"] * (len(heading) - 1)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (heading, ruler, *others))


@contextmanager
def chart(path: Path, *, rows: int = 1, columns: int = 1, size: tuple[float, float]) -> Iterator[Any]:
    """Yield the axes of a new matplotlib figure of `size` inches, and write the figure to `path` when the block ends.

    With one row and one column the yielded value is a single `Axes`, otherwise an array of them. Axes in one column
    share their x axis. A PNG has few colours, so that the repository can keep it.
    """
    import matplotlib as mpl

    mpl.use("Agg")  # no display is needed, nor looked for
    from matplotlib import pyplot as plt
    from PIL import Image

    figure, axes = plt.subplots(rows, columns, figsize=size, layout="constrained", sharex=rows > 1)
    try:
        yield axes
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110)
        if path.suffix == ".png":
            with Image.open(path) as drawn:
                drawn.convert("RGB").quantize(_COLOURS).save(path, optimize=True)
    finally:
        plt.close(figure)
