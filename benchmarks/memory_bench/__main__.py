"""The entry point `python -m memory_bench NAME`, which runs the benchmark or command NAME.

`COMMANDS` maps the name of each sub-command to the function that implements it. The last line that a benchmark prints
on standard output is a JSON object with its main figures.
"""

from importlib import import_module
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

COMMANDS = {
    "recall": "memory_bench.recall.command:recall",
    "curation": "memory_bench.curation.command:curation",
    "latency": "memory_bench.latency.command:latency",
    "backfill": "memory_bench.backfill.command:backfill",
    "swap": "memory_bench.swap.command:swap",
    "upgrade": "memory_bench.upgrade.command:upgrade",
    "operator": "memory_bench.operator.command:operator",
    "embedder": "memory_bench.embedder.command:embedder",
    "embedder-flood": "memory_bench.embedder_flood.command:embedder_flood",
    "fleet": "memory_bench.fleet.command:fleet",
    "shared-embedder": "memory_bench.shared_embedder.command:shared_embedder",
    "second-model": "memory_bench.real_models.command:second_model",
    "multilingual-model": "memory_bench.real_models.command:multilingual_model",
    "keep": "memory_bench.kept:keep",
    "validate": "memory_bench.harness.command:validate",
    "stats": "memory_bench.harness.command:stats",
    "run": "memory_bench.harness.command:run_retrievers",
    "compare": "memory_bench.harness.command:compare",
}


class BenchmarkGroup(TyperGroup):
    """A command group that imports a sub-command only when it is run.

    Therefore no sub-command loads the libraries of another.
    """

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002  (a class that typer keeps private)
        """Return the names of all sub-commands in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand | None:  # noqa: ANN401, ARG002  (the same)
        """Import and return the sub-command `cmd_name`, or return None if there is no such sub-command."""
        if cmd_name not in COMMANDS:
            return None
        module, _, function = COMMANDS[cmd_name].partition(":")
        single = typer.Typer(add_completion=False)
        single.command(cmd_name)(getattr(import_module(module), function))
        return cast("TyperCommand", get_command(single))


app = typer.Typer(name="memory_bench", cls=BenchmarkGroup, no_args_is_help=True, add_completion=False)


@app.callback()
def main() -> None:
    """Run a benchmark of the recall library or of the embedder, or a command on a labelled set.

    Example: python -m memory_bench recall ../shared/datasets
    """


if __name__ == "__main__":
    app()
