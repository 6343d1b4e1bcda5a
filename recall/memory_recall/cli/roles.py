"""`memory roles`: prints SQL that creates database roles with the least rights that they need."""

import sys
from typing import Annotated

import typer

from memory_recall.cli.output import execute
from memory_recall.postgres.connection import opened
from memory_recall.settings import Settings


def register(app: typer.Typer) -> None:
    """Add `memory roles` to the command line."""
    app.command("roles")(roles_command)


def roles_command(
    worker: Annotated[str, typer.Option(help="Role for memory backfill and memory sync.")] = "memory_worker",
    recall: Annotated[str, typer.Option(help="Role for recalls, which only read.")] = "memory_recall",
) -> None:
    """Print SQL that creates one role for workers and one for recalls, each with the least rights that it needs.

    This command changes nothing: read the printed script, and run it as a superuser. The script fits the table as it is
    now and may be run again.

    Examples:
        memory roles > roles.sql
        memory roles --worker memory_sync --recall memory_api
    """

    async def action(settings: Settings) -> str:
        from memory_recall.schema.requirements.reading import has_row_security
        from memory_recall.schema.revisions import require_schema
        from memory_recall.schema.roles import role_script

        async with opened(settings.dsn(), "memory-roles") as connection:
            table = await require_schema(connection, settings.table)
            row_security = await has_row_security(connection, table)
            return role_script(table, worker=worker, reader=recall, row_security=row_security)

    sys.stdout.write(execute(action, as_json=False))
