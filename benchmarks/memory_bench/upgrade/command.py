"""The command `upgrade`: upgrades databases from every starting state to the latest revision while recalls go on."""

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from memory_bench.report import console, machine, write_json
from memory_bench.upgrade.environment import running_environment
from memory_bench.upgrade.on_database import Outcome, upgrade_database
from memory_bench.upgrade.states import BY_NAME, STARTING_STATES, StartingState
from memory_recall.schema.revisions import HEAD_REVISION


def headline(outcomes: list[Outcome]) -> dict[str, int]:
    """Return the benchmark's main figures: how many states were upgraded, and how many errors and losses there were."""
    return {
        "starts": len(outcomes),
        "reached_head": sum(one.reached_head for one in outcomes),
        "recall_errors": sum(one.recall_errors for one in outcomes),
        "rows_lost": sum(one.rows_lost for one in outcomes),
        "vectors_lost": sum(one.vectors_lost for one in outcomes),
    }


async def _upgrade_all(states: list[StartingState]) -> list[Outcome]:
    outcomes = []
    async with running_environment() as environment:
        for state in states:
            outcomes.append(await upgrade_database(environment, state))
            _report(outcomes[-1])
    return outcomes


def _report(outcome: Outcome) -> None:
    verdict = "reached head" if outcome.reached_head else "did not reach head"
    recalls = f"{outcome.recalls} recalls, {outcome.recall_errors} errors"
    console.print(f"{outcome.start}: {verdict} in {outcome.seconds} s, {recalls}")
    for line in filter(None, [outcome.problem, *outcome.faults]):
        console.print(f"      {line}", markup=False)


def upgrade(
    only: Annotated[list[str] | None, typer.Option(help="Repeatable: upgrade this start alone.")] = None,
    output: Annotated[Path | None, typer.Option("--json", help="Write what became of each start to this file.")] = None,
) -> None:
    """Upgrade databases that the baseline made to the latest schema revision while memories are recalled.

    Examples:
        python -m memory_bench upgrade
        python -m memory_bench upgrade --only vectors --only index-dropped --json upgrade.json
    """
    unknown = set(only or ()) - set(BY_NAME)
    if unknown:
        raise typer.BadParameter(f"There is no start {', '.join(sorted(unknown))}; there are {', '.join(BY_NAME)}.")
    outcomes = asyncio.run(_upgrade_all([state for state in STARTING_STATES if not only or state.name in only]))
    figures = headline(outcomes)
    if output is not None:
        starts = [asdict(one) for one in outcomes]
        write_json(output, {"headline": figures, "head": HEAD_REVISION, "machine": machine(), "starts": starts})
    print(json.dumps(figures))
    good = figures["reached_head"] == figures["starts"]
    raise typer.Exit(
        0 if good and not any(figures[name] for name in ("recall_errors", "rows_lost", "vectors_lost")) else 1
    )
