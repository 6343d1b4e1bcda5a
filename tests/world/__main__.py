"""`python -m tests.world`: systems that users run beside us, tried on a cluster; the last line is JSON."""

import json
import tempfile
import time
from collections.abc import Callable, Iterator
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
from tests.world.argo_cd import prove_argo_cd
from tests.world.arm64 import prove_arm64
from tests.world.flux import prove_flux
from tests.world.keda import prove_keda
from tests.world.own_scaling import prove_own_scaling
from tests.world.parts import Figures, Part, PartAlone, Run, World
from tests.world.policies import prove_policies
from tests.world.release import prove_release
from tests.world.tls import prove_tls
from tests.world.tofu import prove_tofu

PARTS_ALONE: dict[str, PartAlone] = {"release": prove_release, "tofu": prove_tofu, "arm64": prove_arm64}
PARTS: dict[str, Part] = {
    "tls": prove_tls,
    "argocd": prove_argo_cd,
    "flux": prove_flux,
    "own_scaling": prove_own_scaling,
    "keda": prove_keda,
    "policies_enforced": prove_policies,
}


def prove(
    only: Annotated[list[str] | None, typer.Option(help="A part's name; may be repeated [default: all]")] = None,
) -> None:
    """Try each system, and print the figures; the status is 1 if one of them did not work as required."""
    known = {**PARTS_ALONE, **PARTS}
    unknown = sorted({*(only or ())} - known.keys())
    if unknown:
        raise typer.BadParameter(f"there is no part {', '.join(unknown)}; there are {', '.join(known)}")
    settings, reporter = Settings(), ConsoleReporter()
    figures: Figures = {}
    faults: dict[str, str] = {}

    def attempt(name: str, part: Callable[[], Figures]) -> None:
        began = time.monotonic()
        try:
            figures.update(part())
        except (AssertionError, DevclusterError) as error:
            faults[name] = str(error)[-3000:]
            figures[name] = None
        typer.echo(f"{name}: {time.monotonic() - began:.0f} s", err=True)

    devcluster.prepare()
    with tempfile.TemporaryDirectory(prefix="world-") as scratch:
        for name, alone in PARTS_ALONE.items():
            if not only or name in only:
                attempt(name, lambda alone=alone: alone(Run(Path(scratch), settings, reporter)))  # type: ignore[misc]
        wanted = {name: part for name, part in PARTS.items() if not only or name in only}
        if wanted:
            with _world(Path(scratch), settings, reporter) as world:
                for name, part in wanted.items():
                    attempt(name, lambda name=name, part=part: {name: part(world)})  # type: ignore[misc]
    for name, fault in faults.items():
        typer.echo(f"not met: {name}: {fault}", err=True)
    typer.echo(json.dumps(figures))
    raise typer.Exit(1 if faults else 0)


@contextmanager
def _world(scratch: Path, settings: Settings, reporter: ConsoleReporter) -> Iterator[World]:
    """Start a cluster with Postgres and the operator for the block."""
    with devcluster.start(f"world-{datetime.now(UTC):%H%M%S}") as cluster:
        yield World(create_platform(cluster), scratch, settings, reporter)


if __name__ == "__main__":
    typer.run(prove)
