"""Runs the command `memory` as a process that is forked from one that has imported it.

Half of what a command costs is importing its parts, and the tests run hundreds of commands. Tests of the start itself,
of signals and of the memory that a process takes run `python -m memory_recall`.
"""

import asyncio
import multiprocessing
import os
import sys
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


async def run_memory(
    arguments: Sequence[str], environment: Mapping[str, str | None], *, folder: Path | None = None
) -> Ended:
    """Run `memory` with these arguments, without an input, until it ends.

    `environment` is added to that of the tests; None removes a variable. `folder` is the working directory, by default
    that of the tests.

    Raises:
        TimeoutError: the command ran for more than five minutes, and was killed.
    """
    variables = {name: value for name, value in {**os.environ, **environment}.items() if value is not None}
    (output, to_output), (errors, to_errors) = _FORKED.Pipe(duplex=False), _FORKED.Pipe(duplex=False)
    given = (list(arguments), variables, str(folder or Path.cwd()), to_output, to_errors)
    process = _FORKED.Process(target=_command, args=given, daemon=True)
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


def _command(
    arguments: list[str], variables: dict[str, str], folder: str, output: Connection, errors: Connection
) -> None:
    from memory_recall.cli.app import main

    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    with Path(os.devnull).open("rb") as nothing:
        for written, number in ((nothing, 0), (output, 1), (errors, 2)):
            os.dup2(written.fileno(), number)
    sys.argv = ["memory", *arguments]
    main()


def _all(source: Connection) -> bytes:
    with os.fdopen(os.dup(source.fileno()), "rb") as file:
        return file.read()
