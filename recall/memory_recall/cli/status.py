"""`memory status`: shows the state of the database as counts and catalog facts."""

import dataclasses
from typing import Any

import typer

from memory_recall.cli.output import JsonOption, emit, execute
from memory_recall.postgres.connection import opened
from memory_recall.settings import Settings
from memory_recall.status import inspect


def register(app: typer.Typer) -> None:
    """Add `memory status` to the command line."""
    app.command("status")(status_command)


def status_command(json: JsonOption = False) -> None:
    """Show counts of rows, the models, the vector index, the pgvector extension and the schema revision.

    Examples:
        memory status
        memory status --json | jq .rows.pending
    """
    emit(execute(_status, as_json=json), as_json=json, title="Memory index")


async def _status(settings: Settings) -> dict[str, Any]:
    async with opened(settings.dsn(), "memory-status") as connection:
        return dataclasses.asdict(await inspect(connection, settings.table))
