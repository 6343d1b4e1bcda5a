"""The command `growth`: reads what `latency` measured, and writes how costs grow and what more rows would take."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from memory_bench.growth.costs import Cost, Plan, PowerLaw, costs, plans, power_law
from memory_bench.report import KeepOption, OutputOption, chart, console, markdown_table, results_directory

_MEASURED = results_directory("latency", None, keep=False) / "latency.json"
_PLANNED = (1_000_000, 3_000_000, 10_000_000, 30_000_000, 100_000_000)
_PARTITION_ROWS = 1_000_000
_SHOWN = ("recall, warm, p95", "recall, cold, p95", "HNSW index", "building the HNSW index")


def growth(
    measured: Annotated[
        Path, typer.Option(help="The results of the benchmark `latency`: by default of its last run.")
    ] = _MEASURED,
    partition_rows: Annotated[int, typer.Option(min=1, help="The most rows of one partition.")] = _PARTITION_ROWS,
    output: OutputOption = None,
    keep: KeepOption = False,
) -> None:
    """Write how the costs of a table grow with its rows, by what `latency` measured last; this takes seconds.

    Costs of a table in partitions are those of its partitions: what is stored and built is multiplied by their number,
    and a recall of one user reads one of them.

    The last line of output is JSON with the exponent of each cost's power law.

    Example: python -m memory_bench growth --partition-rows 2000000
    """
    try:
        found = costs(json.loads(measured.read_text(encoding="utf-8")))
        laws = {one.name: power_law(one.values) for one in found}
    except (OSError, KeyError, ValueError) as error:
        reason = f"{measured} cannot be used ({error!r}); run python -m memory_bench latency."
        console.print(reason, markup=False, soft_wrap=True)
        raise typer.Exit(1) from None
    report = f"{slopes_table(found, laws)}\n{plans_table(plans(_PLANNED, partition_rows, laws))}"
    directory = results_directory("growth", output, keep=keep)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "growth.md").write_text(report, encoding="utf-8")
    _draw(directory / "growth.svg", [one for one in found if one.name in _SHOWN], laws)
    console.print(report, markup=False, highlight=False, soft_wrap=True)
    print(json.dumps({name: round(law.exponent, 3) for name, law in laws.items()}))


def _figure(value: float) -> str:
    """Return a number with three significant digits, and from 100 on as a whole number."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def slopes_table(found: Sequence[Cost], laws: Mapping[str, PowerLaw]) -> str:
    """Return a Markdown table of each cost by number of rows, and of the exponent by which it grows."""
    rows = sorted({rows for one in found for rows in one.values})
    heading = ["cost", "unit", *(f"{one:,} rows" for one in rows), "exponent"]
    lines = [
        [one.name, one.unit, *(_figure(one.values[size]) for size in rows), f"{laws[one.name].exponent:.2f}"]
        for one in found
    ]
    return markdown_table([heading, *lines])


def plans_table(planned: Sequence[Plan]) -> str:
    """Return a Markdown table of what each number of rows takes."""
    heading = ["rows", "partitions", "on disk, GiB", "HNSW, GiB", "building, hours", "one user's recall, p95 ms"]
    lines = [
        [
            f"{one.rows:,}",
            f"{one.partitions}",
            f"{one.gib:.0f}",
            f"{one.index_gib:.1f}",
            f"{one.build_hours:.1f}",
            f"{one.recall_ms:.0f}",
        ]
        for one in planned
    ]
    return markdown_table([heading, *lines])


def _draw(path: Path, shown: Sequence[Cost], laws: Mapping[str, PowerLaw]) -> None:
    with chart(path, rows=2, columns=2, size=(9, 6)) as axes:
        for one, place in zip(shown, axes.flat, strict=True):
            law, rows = laws[one.name], sorted(one.values)
            drawn = [*rows, 10 * rows[-1]]
            place.plot(drawn, [law.at(size) for size in drawn], ":", color="tab:grey", label=f"rows^{law.exponent:.2f}")
            place.plot(rows, [one.values[size] for size in rows], "o", color="tab:blue", label="measured")
            place.set(xscale="log", yscale="log", title=one.name, ylabel=one.unit, xlabel="rows")
            place.grid(alpha=0.3)
            place.legend()
