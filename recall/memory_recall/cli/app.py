"""Assembles the `memory` command from its parts.

Each part is a module with `register(app)`. Large packages (Alembic, the HTTP client) are imported inside the commands,
so that `memory --help` answers at once.
"""

import importlib

import typer

from memory_recall.errors import ExitCode
from memory_recall.hardening import forbid_core_dumps

_PARTS = (
    "schema",
    "importing",
    "exporting",
    "workers",
    "recall",
    "evaluate",
    "tune",
    "status",
    "quarantine",
    "roles",
    "swap",
)


def create_app() -> typer.Typer:
    """Return the command line with all its commands."""
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

    for part in _PARTS:
        importlib.import_module(f"memory_recall.cli.{part}").register(app)
    return app


def main() -> None:
    """Run the command line. An unexpected error is reported without its message, which may hold memory text."""
    from memory_recall.cli.output import report_crash

    forbid_core_dumps()
    try:
        create_app()()
    except Exception as error:  # noqa: BLE001  (the last line of defence: the message of an unknown error may hold text)
        report_crash(error)
        raise SystemExit(ExitCode.FAILURE) from None
