"""`memory quarantine`: lists by id the rows whose embedding failed, and lets their embedding be tried again."""

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from memory_recall.cli.output import JsonOption, emit, execute, shown
from memory_recall.indexing import quarantine_sql
from memory_recall.postgres.connection import opened
from memory_recall.schema.columns.keys import MemoryId
from memory_recall.schema.revisions import require_schema
from memory_recall.settings import Settings

_WIDTH = 1_000  # more than a terminal has, so that no id is cut off, which memory quarantine retry takes


def register(app: typer.Typer) -> None:
    """Add `memory quarantine` to the command line."""
    group = typer.Typer(no_args_is_help=True, help="Rows whose embedding failed.")
    group.command("list")(list_command)
    group.command("retry")(retry_command)
    app.add_typer(group, name="quarantine")


def list_command(
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many rows to list at most.")] = 1000,
    json: JsonOption = False,
) -> None:
    """List rows whose embedding failed: id, attempts, class of the error, and time of the next attempt.

    Examples:
        memory quarantine list
    """
    rows = execute(lambda settings: _list(settings, limit), as_json=json)
    if json:
        emit({"rows": rows}, as_json=True)
        return
    table = Table("id", "attempts", "error", "next attempt", title="Failed rows", title_justify="left")
    table.columns[0].overflow = "fold"
    for row in rows:
        cells = (str(row["id"]), str(row["attempts"]), row["error_class"], row["next_attempt"] or "quarantined")
        table.add_row(*map(shown, cells))
    Console(width=_WIDTH).print(table)


def retry_command(
    ids: Annotated[list[str] | None, typer.Argument(help="The rows' ids; none means all.", metavar="[ID]...")] = None,
    json: JsonOption = False,
) -> None:
    """Forget the failures of rows, so that sync or the next backfill tries to embed them again.

    Examples:
        memory quarantine retry
        memory quarantine retry 17 42
    """
    released = execute(lambda settings: _retry(settings, ids or None), as_json=json)
    emit({"released": released}, as_json=json, title="Quarantine")


async def _list(settings: Settings, limit: int) -> list[dict[str, Any]]:
    async with opened(settings.dsn(), "memory-quarantine") as connection:
        table = await require_schema(connection, settings.table)
        rows = await quarantine_sql.listed(connection, table, limit=limit)
    return [
        {
            "id": row.id,
            "attempts": row.attempts,
            "error_class": row.error_class,
            "next_attempt": row.next_attempt.isoformat() if row.next_attempt else None,
        }
        for row in rows
    ]


async def _retry(settings: Settings, ids: list[str] | None) -> list[MemoryId]:
    async with opened(settings.dsn(), "memory-quarantine") as connection:
        table = await require_schema(connection, settings.table)
        named = None if ids is None else [table.key.parse(one) for one in ids]
        return await quarantine_sql.retry(connection, table, named)
