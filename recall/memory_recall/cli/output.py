"""What the commands print, and how a command's failure becomes an exit status.

What others have written, such as a memory or the version of a server, is printed by `show` or in a table's cell made by
`shown`: without what a terminal would obey, and never read as rich's markup. JSON has the exact texts, with escapes.

Results go to standard output: a table for people or, with --json, exactly one line of JSON. Progress, logs and errors
go to standard error. A fatal error is also written to the container's termination log, from where the operator copies
it into a condition.
"""

import asyncio
import os
import sys
import traceback
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

import orjson
import typer
from pydantic import ValidationError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from memory_recall import logs
from memory_recall.errors import InvalidConfiguration, MemoryIndexError
from memory_recall.settings import Settings
from memory_recall.visible_text import visible_json, visible_text

T = TypeVar("T")
TERMINATION_LOG = Path("/dev/termination-log")
JsonOption = Annotated[bool, typer.Option("--json", help="Print one line of JSON instead of text for people.")]


def load_settings() -> Settings:
    """Read the settings from the environment.

    Raises:
        InvalidConfiguration: a variable is malformed. The message does not repeat its value, which may be a secret.
    """
    try:
        return Settings()
    except ValidationError as error:
        problems = "; ".join(
            f"{'_'.join(str(part) for part in problem['loc']).upper()}: {validation_message(problem['msg'])}"
            for problem in error.errors(include_url=False, include_input=False, include_context=False)
        )
    raise InvalidConfiguration(f"Settings are malformed ({problems}).", "Correct the MEMORY_ variables.")


def validation_message(message: str) -> str:
    """Return the message of a validator of ours without the words that pydantic puts before it."""
    return message.removeprefix("Value error, ")


def emit(result: Mapping[str, Any], *, as_json: bool, title: str = "", to_stderr: bool = False) -> None:
    """Print a command's result as one line of JSON or as a table for people.

    The result goes to standard output. A command that writes other data there sets `to_stderr`, and the result goes to
    standard error.
    """
    stream = sys.stderr if to_stderr else sys.stdout
    if as_json:
        stream.write(json_line(result))
        stream.flush()
        return
    table = Table(title=title or None, show_header=False, box=None, title_justify="left")
    for name, value in _flat(result):
        table.add_row(shown(name.replace("_", " ")), shown(_spelt(value)))
    Console(stderr=to_stderr).print(table)


def json_line(result: Mapping[str, Any]) -> str:
    """Return a line of JSON, from which a program reads the exact texts."""
    return visible_json(orjson.dumps(result, option=orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE).decode())


def shown(text: str) -> Text:
    """Return a text that others wrote as a cell of a table, without the characters that a terminal would obey."""
    return Text(visible_text(text))


def show(lines: Iterable[str], *, to_stderr: bool = False) -> None:
    """Print lines of text for people, to standard output or to standard error."""
    console = Console(soft_wrap=True, highlight=False, stderr=to_stderr)
    console.print(visible_text("\n".join(lines)), markup=False)


def announce_page(address: str) -> None:
    """Print the address of a page that this command serves, and how the command is ended, to standard error."""
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    console.print(f"Open {address}\nThe address is a key to your memories while this command runs. End it with Ctrl-C.")


def _flat(result: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for name, value in result.items():
        if isinstance(value, Mapping):
            rows.extend(_flat(value, f"{prefix}{name} "))
        else:
            rows.append((f"{prefix}{name}", value))
    return rows


def _spelt(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
    if isinstance(value, Mapping):
        return " ".join(str(part) for part in value.values())
    if isinstance(value, (list, tuple)):
        return ", ".join(_spelt(item) if isinstance(item, Mapping) else str(item) for item in value) or "none"
    return str(value)


def progress_bar() -> Progress:
    """Return a progress bar on standard error, which is shown only on a terminal."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )


def execute(action: Callable[[Settings], Coroutine[Any, Any, T]], *, as_json: bool) -> T:
    """Read the settings, run a command's coroutine with them, and return its result.

    Raises:
        typer.Exit: the command failed or was interrupted; the error has been reported.
    """
    try:
        settings = load_settings()
        logs.configure(fmt=settings.log.format, level=settings.log.level)
        return asyncio.run(action(settings))
    except MemoryIndexError as error:
        report_failure(error, as_json=as_json)
        code = int(error.exit_code)
    except KeyboardInterrupt:
        Console(stderr=True).print("Interrupted; what was written to the database is kept.")
        code = 130
    raise typer.Exit(code)


def report_failure(error: MemoryIndexError, *, as_json: bool) -> None:
    """Print an error and its remedy, and write both to the container's termination log if there is one."""
    record = {"reason": error.reason, "message": str(error)}
    if os.access(TERMINATION_LOG, os.W_OK):
        _write_termination_log(TERMINATION_LOG, orjson.dumps(record))
    if as_json:
        sys.stderr.write(json_line(record))
        return
    Console(stderr=True).print(f"[bold red]{error.reason}[/]: ", end="")
    show([error.message, *([error.remedy] if error.remedy else [])], to_stderr=True)


def _write_termination_log(path: Path, record: bytes) -> None:
    try:
        path.write_bytes(record[:4096])
    except OSError as error:
        Console(stderr=True).print(f"The termination log {path} cannot be written ({type(error).__name__}).")


def report_crash(error: Exception) -> None:
    """Print the class and the traceback of an unexpected error, but not its message, which may hold memory text."""
    sys.stderr.write(f"UnexpectedError: {type(error).__module__}.{type(error).__qualname__} (this is a bug)\n")
    for frame in traceback.extract_tb(error.__traceback__):
        sys.stderr.write(f"  {frame.filename}:{frame.lineno} {frame.name}\n")
