"""Assembles the `memory` command from its parts.

Each part is a module with `register(app)`. A process imports only the part of the command that it runs, because workers
and probes start often, and the parts together import NumPy, the HTTP client and the client of Prometheus.
"""

import importlib
import sys
from collections.abc import Iterable

from memory_recall.errors import ExitCode, MissingExtra, importing_extra
from memory_recall.hardening import forbid_core_dumps

try:
    with importing_extra("cli", "The command memory"):
        import typer
except MissingExtra as missing:
    sys.exit(str(missing))  # a console script would print a stack trace

# The commands of each part.
PARTS = {
    "adopt": ("adopt",),
    "schema": ("migrate", "index"),
    "transfer": ("import", "export"),
    "workers": ("backfill", "sync"),
    "recall": ("recall",),
    "evaluate": ("evaluate",),
    "tune": ("tune",),
    "questions": ("questions",),
    "page": ("page",),
    "status": ("status",),
    "quarantine": ("quarantine",),
    "curate": ("curate",),
    "graph": ("graph",),
    "roles": ("roles",),
    "swap": ("swap",),
}


def create_app(parts: Iterable[str] = PARTS) -> typer.Typer:
    """Return the command line with the commands of these parts, by default with all commands."""
    app = typer.Typer(
        name="memory",
        help="Recall by meaning for a memory store in Postgres: schema, index, backfill, import and recall.",
        no_args_is_help=True,
        add_completion=False,
        # Typer's own tracebacks print local variables, and those hold memory text.
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
    )

    @app.callback()
    def root() -> None:
        """Recall by meaning for a memory store in Postgres."""

    for part in parts:
        importlib.import_module(f"memory_recall.cli.{part}").register(app)
    return app


def parts_of(command: str) -> Iterable[str]:
    """Return the part that has this command, the first word of a command line, or all parts if none has it."""
    return [part for part, commands in PARTS.items() if command in commands] or PARTS


def main() -> None:
    """Run the command line. An unexpected error is reported without its message, which may hold memory text."""
    from memory_recall.cli.output import report_crash

    forbid_core_dumps()
    try:
        create_app(parts_of(sys.argv[1] if len(sys.argv) > 1 else ""))()
    except Exception as error:  # noqa: BLE001  (the last line of defence: the message of an unknown error may hold text)
        report_crash(error)
        raise SystemExit(ExitCode.FAILURE) from None
