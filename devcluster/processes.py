"""Runs other programs, and converts their failures into errors that contain the end of their output."""

import os
import shutil
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from devcluster.errors import CommandError, DevclusterError

_TAIL_LINES = 30


def run(
    argv: Sequence[object],
    *,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float | None = None,
    remedy: str = "",
) -> str:
    """Run a program and return its standard output.

    Raises:
        CommandError: the program failed; the error contains the end of its output.
        DevclusterError: the program does not exist or did not end in time.
    """
    command = [str(argument) for argument in argv]
    try:
        done = subprocess.run(
            command,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            errors="replace",
            env=_environment(env),
            cwd=cwd,
            timeout=timeout,
            check=False,
        )
    except FileNotFoundError as error:
        raise _missing(command[0]) from error
    except subprocess.TimeoutExpired as error:
        raise DevclusterError(f"{describe(command)} did not end within {timeout:.0f} s", remedy=remedy) from error
    if done.returncode != 0:
        raise CommandError(
            f"{describe(command)} failed with status {done.returncode}",
            returncode=done.returncode,
            output=tail(done.stderr or done.stdout),
            remedy=remedy,
        )
    return done.stdout


def stream(
    argv: Sequence[object],
    on_line: Callable[[str], None],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    remedy: str = "",
) -> None:
    """Run a program and pass each line of its output to `on_line` as it arrives.

    Raises:
        CommandError: the program failed; the error contains the end of its output.
        DevclusterError: the program does not exist.
    """
    command = [str(argument) for argument in argv]
    last: deque[str] = deque(maxlen=_TAIL_LINES)
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=_environment(env),
            cwd=cwd,
        )
    except FileNotFoundError as error:
        raise _missing(command[0]) from error
    with process:
        try:
            for line in process.stdout or ():
                last.append(line.rstrip())
                on_line(line.rstrip())
        except BaseException:
            process.terminate()
            raise
    if process.returncode != 0:
        raise CommandError(
            f"{describe(command)} failed with status {process.returncode}",
            returncode=process.returncode,
            output="\n".join(last),
            remedy=remedy,
        )


def tail(text: str, lines: int = _TAIL_LINES) -> str:
    """Return the last `lines` lines of a text."""
    return "\n".join(text.rstrip().splitlines()[-lines:])


def describe(command: Sequence[str]) -> str:
    """Describe a command for a message: its program, and each of its first three arguments that is not long."""
    return " ".join([Path(command[0]).name, *(word for word in command[1:4] if len(word) < 60)])


def _environment(extra: Mapping[str, str] | None) -> dict[str, str] | None:
    return None if extra is None else {**os.environ, **extra}


def _missing(program: str) -> DevclusterError:
    return DevclusterError(
        f"{program} is not installed", remedy="run `python -m devcluster preflight` to see what is missing"
    )


def exists(program: str) -> bool:
    """Return whether a program is in PATH."""
    return shutil.which(program) is not None
