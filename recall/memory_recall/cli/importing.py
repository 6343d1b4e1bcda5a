"""`memory import`: stores memories from JSON lines in the table of memories, all of them or none."""

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer
from rich.console import Console

from memory_recall.cli.output import JsonOption, emit, execute
from memory_recall.errors import InvalidInput
from memory_recall.postgres.connection import opened
from memory_recall.postgres.session_sql import require_session
from memory_recall.schema.table import describe
from memory_recall.settings import Settings
from memory_recall.transfer.import_jsonl import import_memories

_SHOW_EVERY = 1000


def register(app: typer.Typer) -> None:
    """Add `memory import` to the command line."""
    app.command("import")(import_command)


def import_command(
    file: Annotated[str, typer.Argument(help="A file of JSON lines, or - for standard input.", metavar="FILE|-")],
    json: JsonOption = False,
) -> None:
    """Import memories, one JSON object a line; the whole file is checked before anything is stored.

    Importing a file again changes nothing; a changed line updates its row. Sensitive rows are stored but never
    embedded.

    Examples:
        memory import corpus.jsonl
        zcat corpus.jsonl.gz | memory import - --json
    """
    emit(execute(lambda settings: _import(settings, file), as_json=json), as_json=json, title="Import")


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        stream = Path(file).open("rb")  # noqa: SIM115  (closed below; only opening may fail with this message)
    except OSError as error:
        raise InvalidInput(
            f"{file} cannot be read ({type(error).__name__}).", "Give the path of a JSONL file."
        ) from None
    with stream:
        yield stream


async def _import(settings: Settings, file: str) -> dict[str, Any]:
    with _opened(file) as stream:
        async with opened(settings.dsn(), "memory-import") as connection:
            await require_session(connection)
            table = await describe(connection, settings.table)
            table.require_supported()
            with Console(stderr=True).status("Importing") as status:

                def show(count: int) -> None:
                    if count % _SHOW_EVERY == 0:
                        status.update(f"Importing: {count:,} memories read")

                result = await import_memories(connection, table, stream, on_progress=show)
    return dataclasses.asdict(result)
