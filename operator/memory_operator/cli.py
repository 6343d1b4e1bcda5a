"""Define the operator's command line: `memory-operator run`."""

import asyncio
from importlib.metadata import version

import typer
from pydantic import ValidationError

from memory_operator.app import serve
from memory_operator.clients.connection import NoConnectionError
from memory_operator.settings import Settings
from memory_recall import logs
from memory_recall.hardening import forbid_core_dumps

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="The operator of MemoryIndex objects.",
)


@app.callback()
def _commands() -> None:
    """Have typer treat `run` and `version` as sub-commands."""


@app.command()
def run() -> None:
    """Watch MemoryIndex objects and reconcile them until stopped. Settings come from MEMORY_OPERATOR_* variables."""
    try:
        settings = Settings()
    except ValidationError as error:
        for wrong in error.errors(include_input=False):
            name = "_".join(str(part) for part in wrong["loc"]).upper()
            typer.echo(f"MEMORY_OPERATOR_{name}: {wrong['msg']}", err=True)
        raise typer.Exit(2) from None
    logs.configure(fmt=settings.log.format, level=settings.log.level, package="memory_operator")
    try:
        if not asyncio.run(serve(settings)):
            raise typer.Exit(1)
    except NoConnectionError as error:
        typer.echo(f"No Kubernetes API: {error}. Run in a cluster, or set KUBECONFIG.", err=True)
        raise typer.Exit(2) from None


@app.command("version")
def show_version() -> None:
    """Print the version."""
    typer.echo(version("memory-operator"))


def main() -> None:
    """Run the console script `memory-operator`."""
    forbid_core_dumps()
    app()
