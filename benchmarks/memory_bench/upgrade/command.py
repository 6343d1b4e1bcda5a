"""The command `upgrade`: upgrades databases from every starting state to the latest revision while recalls go on."""

import asyncio
import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from memory_bench.report import console, machine, write_json
from memory_bench.upgrade.former import HistoryMissing, former_sources
from memory_bench.upgrade.on_cluster import OBJECT_STARTING_STATES, upgrade_objects
from memory_bench.upgrade.on_database import upgrade_database
from memory_bench.upgrade.outcome import Outcome, head_revision
from memory_bench.upgrade.starts import BY_NAME, STARTING_STATES, StartingState
from memory_bench.upgrade.workshop import running_environment


def headline(outcomes: list[Outcome]) -> dict[str, int]:
    """Return the benchmark's main figures: how many states were upgraded, and how many errors and losses there were."""
    return {
        "starts": len(outcomes),
        "on_cluster": sum(one.on_cluster for one in outcomes),
        "reached_head": sum(one.reached_head for one in outcomes),
        "recall_errors": sum(one.recall_errors for one in outcomes),
        "rows_lost": sum(one.rows_lost for one in outcomes),
        "vectors_lost": sum(one.vectors_lost for one in outcomes),
    }


async def _upgrade_all(databases: list[StartingState], objects: list[str]) -> list[Outcome]:
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="memory-bench-upgrade-") as directory:
        if databases:
            async with running_environment(former_sources(Path(directory) / "libraries")) as environment:
                for start in databases:
                    outcomes.append(await upgrade_database(environment, start))
                    _report(outcomes[-1])
        if objects:
            outcomes += await upgrade_objects(Path(directory), objects, _report)
    return outcomes


def _report(outcome: Outcome) -> None:
    verdict = "reached head" if outcome.reached_head else "did not reach head"
    recalls = f"{outcome.recalls} recalls, {outcome.recall_errors} errors"
    console.print(f"{outcome.start}: {verdict} in {outcome.seconds} s, {recalls}")
    for line in filter(None, [outcome.problem, *outcome.faults]):
        console.print(f"      {line}", markup=False)


def upgrade(
    only: Annotated[list[str] | None, typer.Option(help="Repeatable: upgrade this start alone.")] = None,
    cluster: Annotated[bool, typer.Option("--cluster/--no-cluster", help="Upgrade objects on a cluster, too.")] = True,
    output: Annotated[Path | None, typer.Option("--json", help="Write what became of each start to this file.")] = None,
) -> None:
    """Upgrade databases from every former schema revision to the latest one while memories are recalled.

    Both the former and the present recall library recall during the upgrade. The operator on a real cluster is upgraded
    too, unless `--no-cluster` is given or `--only` names databases alone.

    Examples:
        python -m memory_bench upgrade --no-cluster
        python -m memory_bench upgrade --only 0003-vectors --only 0005-swap-ready
        python -m memory_bench upgrade --only object-ready --json upgrade.json
    """
    names = [*BY_NAME, *OBJECT_STARTING_STATES]
    unknown = set(only or ()) - set(names)
    if unknown:
        raise typer.BadParameter(f"There is no start {', '.join(sorted(unknown))}; there are {', '.join(names)}.")
    databases = [start for start in STARTING_STATES if not only or start.name in only]
    objects = [name for name in OBJECT_STARTING_STATES if (cluster and not only) or name in (only or ())]
    try:
        outcomes = asyncio.run(_upgrade_all(databases, objects))
    except HistoryMissing as error:
        console.print(str(error), markup=False)
        raise typer.Exit(1) from None
    figures = headline(outcomes)
    if output is not None:
        starts = [asdict(one) for one in outcomes]
        write_json(output, {"headline": figures, "head": head_revision(), "machine": machine(), "starts": starts})
    print(json.dumps(figures))
    good = figures["reached_head"] == figures["starts"]
    raise typer.Exit(
        0 if good and not any(figures[name] for name in ("recall_errors", "rows_lost", "vectors_lost")) else 1
    )
