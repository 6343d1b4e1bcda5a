"""Runs the command `memory` as a process that is forked from one that has imported it.

Half of what a command costs is importing its parts, and the tests run hundreds of commands. Tests of the start itself,
of signals and of the memory that a process takes run `python -m memory_recall`.
"""

import asyncio
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from memory_recall.cli.app import PARTS

_SECONDS = 300.0  # for one command, on a machine that is busy with others
_FORKED = multiprocessing.get_context("forkserver")
_FORKED.set_forkserver_preload(["memory_recall.logs", "numpy", *(f"memory_recall.cli.{part}" for part in PARTS)])


@dataclass(frozen=True, slots=True)
class Ended:
    """What a command has left: its exit status, and what it wrote to standard output and standard error."""

    status: int
    output: bytes
    errors: bytes


@dataclass(frozen=True, slots=True)
class _Start:
    arguments: list[str]
    variables: dict[str, str]
    folder: Path
    given: str
    termination_log: Path | None


async def run_memory(
    arguments: Sequence[str],
    environment: Mapping[str, str | None],
    *,
    folder: Path | None = None,
    given: str = "",
    termination_log: Path | None = None,
) -> Ended:
    """Run `memory` with these arguments until it ends.

    `environment` is added to that of the tests; None removes a variable. `folder` is the working directory, by default
    that of the tests. `given` is the whole standard input. `termination_log` takes the place of the container's.

    Raises:
        TimeoutError: the command ran for more than five minutes, and was killed.
    """
    variables = {name: value for name, value in {**os.environ, **environment}.items() if value is not None}
    (output, to_output), (errors, to_errors) = _FORKED.Pipe(duplex=False), _FORKED.Pipe(duplex=False)
    start = _Start(list(arguments), variables, folder or Path.cwd(), given, termination_log)
    process = _FORKED.Process(target=_command, args=(start, to_output, to_errors), daemon=True)
    try:
        await asyncio.to_thread(process.start)
        to_output.close()
        to_errors.close()
        async with asyncio.timeout(_SECONDS):
            written = await asyncio.gather(asyncio.to_thread(_all, output), asyncio.to_thread(_all, errors))
            await asyncio.to_thread(process.join)
    finally:
        if process.is_alive():
            process.kill()
    assert process.exitcode is not None
    return Ended(process.exitcode, *written)


def _command(start: _Start, output: Connection, errors: Connection) -> None:
    from memory_recall.cli import app
    from memory_recall.cli import output as printed

    os.environ.clear()
    os.environ.update(start.variables)
    os.chdir(start.folder)
    with tempfile.TemporaryFile() as given:
        given.write(start.given.encode())
        given.seek(0)
        for stream, number in ((given, 0), (output, 1), (errors, 2)):
            os.dup2(stream.fileno(), number)
    sys.stdin = os.fdopen(0, closefd=False)  # multiprocessing has opened another one, which is empty
    if start.termination_log:
        printed.TERMINATION_LOG = start.termination_log
    sys.argv = ["memory", *start.arguments]
    app.main()


def _all(source: Connection) -> bytes:
    with os.fdopen(os.dup(source.fileno()), "rb") as file:
        return file.read()
