"""The command line of the demo: its options, the choice of environment, and the exit status.

People read stderr. Programs read the last line of stdout and the exit status: 0 if the demo kept all its promises, 1 if
it did not, 2 if the options or the data set cannot be used, 130 if the demo was interrupted.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from devcluster import first_run
from devcluster.demo import scenario, verdict
from devcluster.demo.console import DemoConsole
from devcluster.demo.dataset import Dataset, DatasetError, load
from devcluster.demo.environment import DemoError
from devcluster.demo.places import run_on_cluster, run_on_this_machine
from devcluster.demo.scenario import Record
from devcluster.demo.verdict import Outcome
from devcluster.errors import DevclusterError, UnsupportedError
from devcluster.settings import REPOSITORY, DriverName, Settings

DEFAULT_DATA = REPOSITORY / "examples" / "homelab"
LOG_WIDTH = 140
EXIT_BROKEN, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130


@dataclass(frozen=True)
class Options:
    """Options of the demo's command line."""

    keep: bool
    driver: DriverName | None
    local: bool


def demo(
    data: Annotated[
        Path, typer.Option(envvar="DATA", help="A directory with corpus.jsonl, queries.jsonl and qrels.jsonl.")
    ] = DEFAULT_DATA,
    keep: Annotated[bool, typer.Option("--keep", envvar="KEEP", help="Leave the cluster running at the end.")] = False,
    driver: Annotated[
        DriverName | None, typer.Option(envvar="DRIVER", help="Use this driver instead of the one that fits.")
    ] = None,
    local: Annotated[
        bool, typer.Option("--local", envvar="LOCAL", help="No cluster: processes of this machine only.")
    ] = False,
) -> None:
    """Show how a store of memories gets an index, and what recall gains by it."""
    console = DemoConsole(_console())
    try:
        dataset = load(data)
    except DatasetError as error:
        console.say(f"The data set cannot be used:\n{error}")
        raise typer.Exit(EXIT_USAGE) from error
    record = Record(Outcome(cluster=None, seconds=0.0))
    code = _run(console, dataset, Options(keep, driver, local), record)
    outcome = replace(record.outcome, seconds=console.elapsed)
    broken = verdict.problems(outcome) if code == 0 else ()
    for problem in broken:
        console.say(f"Not as promised: {problem}.")
    if code == 0 and not broken:
        console.say(scenario.closing_line(outcome))
        _say_first_run(console, outcome)
    typer.echo(verdict.as_json(outcome))
    raise typer.Exit(code or (EXIT_BROKEN if broken else 0))


def _say_first_run(console: DemoConsole, outcome: Outcome) -> None:
    first = first_run.complete(Settings()) if outcome.cluster is not None else None
    if first is not None:
        console.say(f"This first run took {first.minutes} minutes on {first.processors} processors.")


def _console() -> Console:
    """Return a console on stderr; without a terminal it is 140 columns wide, since 80 would break most lines."""
    console = Console(stderr=True)
    return console if console.is_terminal else Console(stderr=True, width=LOG_WIDTH)


def _run(console: DemoConsole, dataset: Dataset, options: Options, record: Record) -> int:
    """Run the demo on a cluster, or on this machine if no driver can start one, and return the exit status."""
    try:
        try:
            _run_anywhere(console, dataset, options, record)
        except UnsupportedError as error:
            if options.driver is not None:
                raise
            console.say(f"No driver can start a cluster here: {error}")
            run_on_this_machine(console, dataset, record)
    except (DemoError, DevclusterError) as error:
        console.say(f"\nThe demo stopped: {error}")
        return EXIT_BROKEN
    except KeyboardInterrupt:
        console.say("\nInterrupted; everything that was started is ended.")
        return EXIT_INTERRUPTED
    return 0


def _run_anywhere(console: DemoConsole, dataset: Dataset, options: Options, record: Record) -> None:
    if options.local:
        run_on_this_machine(console, dataset, record)
    else:
        run_on_cluster(console, dataset, record, driver=options.driver, keep=options.keep)


def main() -> None:
    """Run the demo's command line."""
    app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
    app.command()(demo)
    app()
