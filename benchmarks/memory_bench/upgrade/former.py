"""Provides former commits of this project: their source files, taken from git's history, and their `memory` command."""

import asyncio
import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.recalling.loop import CommandFailed

ROOT = Path(__file__).resolve().parents[3]
COMMITS = {  # the last revision that each of them migrates to
    "12668a9": "0003",
    "1bf5068": "0004",
    "8827371": "0005",
    "5ed9431": "0005",
}
LAST_COMMIT = "5ed9431"
_ENTRY = "from memory_recall.cli.app import main; main()"


class HistoryMissing(Exception):  # noqa: N818  (the name is the reason that users read)
    """The git history of this checkout does not contain a former commit that is needed."""


@dataclass(frozen=True)
class Sources:
    """A directory with `recall/` and `migrations/`: this checkout, or the unpacked files of a former commit."""

    directory: Path

    def environment_for(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables of a process that uses this library; MEMORY_ variables are not inherited."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("MEMORY_")}
        return {**inherited, "PYTHONPATH": str(self.directory / "recall"), **variables}

    async def spawn(self, *arguments: str, variables: Mapping[str, str]) -> asyncio.subprocess.Process:
        """Start the `memory` command of these sources as a process."""
        return await self.python("-c", _ENTRY, *arguments, variables=variables)

    async def python(self, *arguments: str, variables: Mapping[str, str]) -> asyncio.subprocess.Process:
        """Start Python with the library of these sources, and with pipes for input, output and errors."""
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self.directory,
            env=self.environment_for(variables),
        )

    async def memory(self, *arguments: str, variables: Mapping[str, str], expected: int = 0) -> str:
        """Run the `memory` command of these sources to its end and return its standard output.

        Raises:
            CommandFailed: the command's exit status is not `expected`.
        """
        process = await self.spawn(*arguments, variables=variables)
        return await output_of(process, f"memory {' '.join(arguments)}", expected=expected)


async def output_of(process: asyncio.subprocess.Process, name: str, *, expected: int = 0) -> str:
    """Wait until a process ends and return its standard output; an error message calls the process `name`.

    Raises:
        CommandFailed: the exit status of the process is not `expected`.
    """
    out, error = await process.communicate()
    if process.returncode != expected:
        raise CommandFailed(f"{name} ended with status {process.returncode}: {error.decode()[-600:].strip()}")
    return out.decode()


PRESENT = Sources(ROOT)


def archive(commit: str, directory: Path, *paths: str) -> Path:
    """Write a commit's files into a folder of `directory` that is named after the commit, and return that folder.

    If `paths` are given, only the files below them are written.

    Raises:
        HistoryMissing: the git history of this checkout does not contain the commit.
    """
    target = directory / commit
    try:
        packed = subprocess.run(
            ["git", "archive", "--format=tar", commit, *paths], cwd=ROOT, capture_output=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", b"") or b""
        raise HistoryMissing(
            f"Commit {commit} is not in this checkout ({said.decode(errors='replace').strip() or error}). Upgrades are "
            "tested from former commits: use a clone with full history (git fetch --unshallow)."
        ) from None
    with tarfile.open(fileobj=io.BytesIO(packed)) as files:
        files.extractall(target, filter="data")
    return target


def former_sources(directory: Path) -> dict[str, Sources]:
    """Write the library and migrations of every former commit into a folder of `directory`; return them by commit.

    Raises:
        HistoryMissing: the git history of this checkout does not contain a former commit.
    """
    return {commit: Sources(archive(commit, directory, "recall", "migrations")) for commit in COMMITS}
