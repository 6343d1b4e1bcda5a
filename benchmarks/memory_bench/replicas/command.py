"""The command `replicas`: recalls a second of one and of two instances of Postgres."""

import asyncio
import json
import os
import signal
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from memory_bench.latency.store import build
from memory_bench.latency.synthetic import Synthetic
from memory_bench.postgres import STEADY, MeasuredServer
from memory_bench.replicas.measure import ONE, STANDBY, TWO, Instances, Measured, measure
from memory_bench.report import KeepOption, OutputOption, console, machine, results_directory, write_json

_SETTINGS = {**STEADY, "fsync": "off", "shared_buffers": "1GB", "maintenance_work_mem": "1GB"}
_QUESTIONS = 200
_FULL = 0.9  # the share of a core from which on it is taken for fully used


def replicas(  # noqa: PLR0917  (typer makes options of them; nobody calls this by position)
    rows: Annotated[int, typer.Option(help="Rows of the table, a multiple of 5,000.")] = 20_000,
    clients: Annotated[int, typer.Option(min=1, help="Concurrent clients of each instance.")] = 4,
    seconds: Annotated[float, typer.Option(help="Seconds of each measurement.")] = 5.0,
    rounds: Annotated[int, typer.Option(min=1, help="Measurements of each condition, which alternate.")] = 5,
    output: OutputOption = None,
    keep: KeepOption = False,
) -> None:
    """Measure how many recalls a second one and two instances of Postgres answer, each bound to one processor core.

    The last line of output is JSON with the main figures, among them `binds`, which says what bounds two instances.

    Example: python -m memory_bench replicas --rows 5000 --rounds 1
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        console.print("Two instances need a core each, and this process may use one alone.")
        raise typer.Exit(1)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the servers end with us
    with tempfile.TemporaryDirectory(prefix="memory-bench-") as directory:
        measured = asyncio.run(_measure(Path(directory), cores, rows, clients=clients, seconds=seconds, rounds=rounds))
    results = results_directory("replicas", output, keep=keep)
    found = {condition: [asdict(one) for one in all_rounds] for condition, all_rounds in measured.items()}
    write_json(results / "results.json", {"rows": rows, "clients": clients, "rounds": found, "machine": machine()})
    console.print(f"Results are in {results}.")
    print(json.dumps(figures(measured, cores=len(cores))))


async def _measure(
    directory: Path, cores: Sequence[int], rows: int, *, clients: int, seconds: float, rounds: int
) -> dict[str, list[Measured]]:
    measured: dict[str, list[Measured]] = {condition: [] for condition in (ONE, TWO, STANDBY)}
    async with MeasuredServer(_SETTINGS, directory / "primary") as primary:
        console.print(f"A table of {rows:,} rows, then a standby of its server")
        built = await build(primary, rows, console.print)
        async with primary.standby(directory / "standby", _SETTINGS) as standby:
            instances = Instances(primary, standby, built.database, cores)
            instances.bind()
            questions = Synthetic().questions(rows, _QUESTIONS)
            for condition in measured:
                await measure(condition, instances, questions, clients=clients, seconds=seconds)  # fills the caches
            for number in range(rounds):
                console.print(f"Round {number + 1} of {rounds}")
                for condition, all_rounds in measured.items():
                    one = await measure(condition, instances, questions, clients=clients, seconds=seconds)
                    all_rounds.append(one)
    return measured


def figures(measured: Mapping[str, Sequence[Measured]], *, cores: int) -> dict[str, Any]:
    """Return the main figures: medians of recalls a second, and milliseconds of processor time for each recall.

    `two_vs_one` is what was measured. `two_vs_one_without_clients` is computed: what two servers would answer if the
    clients had processors of their own. `primary_ms_of_a_recall_on_the_standby` is what reading again costs.
    """
    rate = {condition: median(one.per_second for one in rounds) for condition, rounds in measured.items()}
    one, two, standby = (_total(measured[condition]) for condition in (ONE, TWO, STANDBY))
    server_one, server_two = one.servers / one.recalls, two.servers / two.recalls
    return {
        "recalls_per_second_one": round(rate[ONE], 1),
        "recalls_per_second_two": round(rate[TWO], 1),
        "two_vs_one": round(rate[TWO] / rate[ONE], 2),
        "two_vs_one_without_clients": round(2 * server_one / server_two, 2),
        "server_ms_one": round(1e3 * server_one, 2),
        "server_ms_two": round(1e3 * server_two, 2),
        "client_ms_two": round(1e3 * two.clients / two.recalls, 2),
        "primary_ms_of_a_recall_on_the_standby": round(1e3 * standby.primary / standby.recalls, 2),
        "binds": what_binds(two, cores=cores),
    }


def what_binds(two: Measured, *, cores: int) -> str:
    """Return what bounds the recalls of two instances, by the processor time that was used."""
    shares = f"servers {two.servers / two.seconds:.2f} cores, clients {two.clients / two.seconds:.2f}"
    if cores == 2 and two.busy >= 2 * _FULL:
        return f"the two cores, which the clients share ({shares})"
    if min(two.primary, two.standby) >= _FULL * two.seconds:
        return f"the servers' cores ({shares})"
    if two.clients >= _FULL * two.seconds:
        return f"the one process of the clients ({shares})"
    return f"no processor ({shares})"


def _total(rounds: Sequence[Measured]) -> Measured:
    parts = zip(*(asdict(one).values() for one in rounds), strict=True)
    return Measured(*(sum(part) for part in parts))
