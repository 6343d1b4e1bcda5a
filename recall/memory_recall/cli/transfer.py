"""`memory import` and `memory export`: memories as JSON lines, the sensitive and deleted ones never exported."""

import dataclasses
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer
from rich.console import Console

from memory_recall.cli.output import JsonOption, emit, execute, json_line, progress_bar
from memory_recall.errors import InvalidInput
from memory_recall.postgres.connection import opened
from memory_recall.postgres.session import opened_session
from memory_recall.private_file import create_private_file
from memory_recall.schema.requirements.reading import require_every_row
from memory_recall.schema.requirements.used_columns import require_columns
from memory_recall.schema.table import describe
from memory_recall.settings import Settings
from memory_recall.transfer.export_jsonl import exporting
from memory_recall.transfer.import_jsonl import import_memories

_SHOW_EVERY = 1000
_STANDARD_STREAM = "-"


def register(app: typer.Typer) -> None:
    """Add `memory import` and `memory export` to the command line."""
    app.command("import")(import_command)
    app.command("export")(export_command)


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
def _opened_for_reading(file: str) -> Iterator[BinaryIO]:
    if file == _STANDARD_STREAM:
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
    with _opened_for_reading(file) as stream:
        async with opened_session(settings.dsn(), "memory-import") as connection:
            table = await describe(connection, settings.table)
            table.require_exists()
            require_columns(table)
            await require_every_row(connection, table, writes=True)
            with Console(stderr=True).status("Importing") as status:

                def show(count: int) -> None:
                    if count % _SHOW_EVERY == 0:
                        status.update(f"Importing: {count:,} memories read")

                result = await import_memories(connection, table, stream, on_progress=show)
    return dataclasses.asdict(result)


def export_command(
    file: Annotated[str, typer.Argument(help="A file that does not exist yet, or - for stdout.", metavar="FILE|-")],
    json: JsonOption = False,
) -> None:
    """Export memories, one JSON object a line, in the form that `memory import` takes. Vectors are not exported.

    Sensitive and deleted rows are left out and counted. The new file is readable by its owner alone. An existing file
    is never overwritten.

    Examples:
        memory export memories.jsonl
        memory export - | gzip > memories.jsonl.gz
    """
    result = execute(lambda settings: _export(settings, file), as_json=json)
    # Where the memories themselves go to standard output, what is said about them may not.
    emit(result, as_json=json, title="Export", to_stderr=file == _STANDARD_STREAM)


@contextmanager
def _opened_for_writing(file: str) -> Iterator[BinaryIO]:
    """Create a file for writing, or yield standard output if `file` is `-`. If writing fails, the file is removed.

    Raises:
        InvalidInput: the file exists already, or cannot be created or written.
    """
    if file == _STANDARD_STREAM:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(file)
    try:
        stream = create_private_file(path)
    except FileExistsError:
        raise InvalidInput(f"{file} exists already.", "Name another file, or remove that one.") from None
    except OSError as error:
        raise InvalidInput(f"{file} cannot be created ({type(error).__name__}).", "Name another file.") from None
    try:
        with stream:
            yield stream
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise InvalidInput(f"{file} cannot be written ({type(error).__name__}).", "Check the disk.") from None
        raise


async def _export(settings: Settings, file: str) -> dict[str, Any]:
    async with opened(settings.dsn(), "memory-export") as connection:
        table = await describe(connection, settings.table)
        table.require_exists()
        require_columns(table)
        await require_every_row(connection, table)
        with _opened_for_writing(file) as stream, progress_bar() as bar:
            async with exporting(connection, table) as export:
                task = bar.add_task("Exporting", total=export.counts.shareable)
                async for memory in export.memories():
                    stream.write(json_line(memory).encode())
                    if export.exported % _SHOW_EVERY == 0:
                        bar.update(task, completed=export.exported)
                bar.update(task, completed=export.exported)
    left_out = {"sensitive": export.counts.sensitive, "deleted": export.counts.deleted, "blank": export.blank}
    return {"exported": export.exported, "left_out": left_out}
