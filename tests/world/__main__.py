"""`python -m tests.world`: systems that users run beside us, met on a cluster; the last line is JSON."""

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

import devcluster
from devcluster.errors import DevclusterError
from devcluster.progress import ConsoleReporter
from devcluster.settings import Settings
from tests.support.cluster.platform import create_platform
from tests.world import flux, keda, own_scaling
from tests.world.parts import Figures, Part, World

PARTS: dict[str, Part] = {
    "own_scaling": own_scaling.meet,
    "flux": flux.meet,
    "keda": keda.meet,
}


def prove(
    only: Annotated[list[str] | None, typer.Option(help=f"One of {', '.join(PARTS)} [default: all]")] = None,
) -> None:
    """Meet each system, and print the figures; the status is 1 if one of them could not be met as required."""
    unknown = sorted({*(only or ())} - PARTS.keys())
    if unknown:
        raise typer.BadParameter(f"there is no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    wanted = {name: part for name, part in PARTS.items() if not only or name in only}
    settings, reporter = Settings(), ConsoleReporter()
    figures: Figures = {}
    faults: dict[str, str] = {}
    with _world(settings, reporter) as world:
        for name, part in wanted.items():
            began = time.monotonic()
            try:
                with reporter.step(f"Meet {name}"):
                    figures[name] = part(world)
            except (AssertionError, DevclusterError) as error:
                faults[name] = str(error)[-3000:]
                figures[name] = None
            typer.echo(f"{name}: {time.monotonic() - began:.0f} s", err=True)
    for name, fault in faults.items():
        typer.echo(f"not met: {name}: {fault}", err=True)
    typer.echo(json.dumps(figures))
    raise typer.Exit(1 if faults else 0)


@contextmanager
def _world(settings: Settings, reporter: ConsoleReporter) -> Iterator[World]:
    """Start a cluster with Postgres and the operator for the block."""
    devcluster.prepare()
    with (
        tempfile.TemporaryDirectory(prefix="world-") as scratch,
        devcluster.start(f"world-{datetime.now(UTC):%H%M%S}") as cluster,
    ):
        yield World(create_platform(cluster), Path(scratch), settings, reporter)


if __name__ == "__main__":
    typer.run(prove)
