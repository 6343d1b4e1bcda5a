"""Adopts stores one after another, each in a database of its own, with the commands that a person types."""

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import asyncpg

from devcluster.settings import REPOSITORY
from memory_recall.errors import ExitCode
from tests.support.bad_tables import BadTable
from tests.support.invoked_command import invoke_memory
from tests.support.ports import reserved_ports
from tests.support.postgres_instance import APP_PASSWORD, APP_ROLE, PostgresInstance

ANSWER, QUESTION = "The boiler in the cellar loses pressure every winter.", "heating trouble when it is cold"
FIRST = [ANSWER, "Our dog Bruno is allergic to chicken.", "The landlord raises the rent from January."]
SECOND = ["The bicycle has new brakes.", "The neighbour waters the plants.", "Bread is baked on Saturdays."]  # as many
OWNER = "11111111-aaaa-4111-8111-111111111111"
_SECONDS = 300.0

# The database and the program of a logged statement; our own programs call themselves memory-...
_PREFIX = "database=%d program=%a; "
_ENTRY = re.compile(r"^database=(?P<database>\S*) program=(?P<program>[^;]*); (?P<text>.*(?:\n\t.*)*)", re.MULTILINE)
_WRITTEN = re.compile(r"LOG:  (?:statement|execute [^:]*):\s+(INSERT\b.*)", re.DOTALL)
_VALUES = re.compile(r"'(?:[^']|'')*'|\b[0-9.]+\b|ARRAY\[.*?\]", re.DOTALL)

Write = Callable[[list[str]], str]


@dataclass(frozen=True)
class Outcome:
    """What became of a store: whether its own writer wrote and found as before, and whether a question was answered.

    `changed` statements were written after the adoption that were not before. `minutes` is the time from the first
    command of the documentation to the answer. `missing` says in words what was not as it should be.
    """

    name: str
    written: bool
    answered: bool
    changed: int
    minutes: float
    missing: tuple[str, ...] = ()


@contextmanager
def postgres() -> Iterator[PostgresInstance]:
    """Run a server with a role that owns databases, as an ordinary user does."""
    with (
        TemporaryDirectory(prefix="e2e-adopt-", ignore_cleanup_errors=True) as directory,
        reserved_ports(1) as (port,),
    ):
        server = PostgresInstance(Path(directory), port)
        server.create()
        server.start()
        try:
            for setting in ("log_statement = 'mod'", f"log_line_prefix = '{_PREFIX}'"):
                _execute(server.superuser_dsn(), f"ALTER SYSTEM SET {setting}")
            _execute(server.superuser_dsn(), "SELECT pg_reload_conf()")
            _execute(server.superuser_dsn(), f"CREATE ROLE {APP_ROLE} LOGIN PASSWORD '{APP_PASSWORD}'")
            yield server
        finally:
            server.stop("immediate")


def new_database(server: PostgresInstance, name: str) -> str:
    """Create a database with pgvector, and return its DSN."""
    _execute(server.superuser_dsn(), f"CREATE DATABASE {name} OWNER {APP_ROLE}")
    _execute(server.superuser_dsn(name), "CREATE EXTENSION vector")
    return server.dsn(name)


@dataclass(frozen=True)
class Written:
    """A store in a database of its own, and what writes it.

    `write` writes texts, and returns the text that the writer's own search finds for the first of them.
    """

    name: str
    dsn: str
    table: str
    write: Write


def adopt_store(server: PostgresInstance, store: Written, embedder: str, *, options: tuple[str, ...] = ()) -> Outcome:
    """Have a store written, adopt it with these options, have the same writer write it again, and ask a question."""
    dsn, table = store.dsn, store.table
    missing = [] if store.write(FIRST) == ANSWER else ["its own search before"]
    statements, before = _statements(server, dsn), _rows(dsn, table)
    if not statements:
        missing.append("its statements in the server's log")
    memory, begun = _Memory(dsn, embedder, table), time.monotonic()
    plan = json.loads(memory.run("adopt", table, *options, "--json", expected=0 if not missing else None))
    memory.run("adopt", table, *options, "--apply")
    memory.run("backfill")
    memory.run("index", "build")
    if _rows(dsn, table, before[0]) != before:
        missing.append("its columns and rows")
    written = store.write(SECOND) == SECOND[0]
    memory.run("backfill")
    found = json.loads(memory.run("recall", QUESTION, "--everyone", "--mode", "dense", "--json"))
    minutes = (time.monotonic() - begun) / 60
    answered = bool(found["memories"]) and found["memories"][0]["content"].endswith(ANSWER)
    if not plan["adoptable"]:
        missing.append("the plan")
    changed = len(_statements(server, dsn) - statements)
    return Outcome(store.name, written and not missing, answered, changed, minutes, tuple(missing))


def _statements(server: PostgresInstance, dsn: str) -> set[str]:
    """Return the INSERT statements of other programs in a database, without their values, as the server logged them."""
    found = set()
    for entry in _ENTRY.finditer(server.log.read_text(errors="replace")):
        written = _WRITTEN.search(entry["text"])
        if written and entry["database"] == dsn.rpartition("/")[2] and not entry["program"].startswith("memory"):
            found.add(_without_values(written[1]))
    return found


def _without_values(statement: str) -> str:
    """Return a statement without its values, and with one row where it has several."""
    rows = re.sub(r"\s+", " ", _VALUES.sub("?", statement))
    return re.sub(r"(VALUES )(\(.*\))", r"\1(...)", rows)


def is_named_at_once(bad: BadTable, dsn: str) -> bool:
    """Create a table that cannot be adopted; return whether one look says everything that is wrong with it."""
    _execute(dsn, bad.create)
    settings = {"MEMORY_DATABASE_URL": dsn, "MEMORY_MODEL": "all-MiniLM-L6-v2"}
    done = invoke_memory(["adopt", "notes", *bad.options, "--json"], settings)
    if done.exit_code != ExitCode.NEEDS_PERSON:
        return False
    plan = json.loads(done.stdout)
    said = " ".join(f"{one['message']} {one['remedy']}" for one in (*plan["questions"], *plan["faults"]))
    return all(part in said for part in bad.named)


@dataclass(frozen=True)
class _Memory:
    """The command `memory` with the settings of one table."""

    dsn: str
    embedder: str
    table: str

    def run(self, *arguments: str, expected: int | None = 0) -> str:
        """Run a command, and return what it prints.

        Raises:
            RuntimeError: it ended with another status than `expected`.
        """
        settings = {
            "MEMORY_DATABASE_URL": self.dsn, "MEMORY_TABLE": self.table, "MEMORY_MODEL": "all-MiniLM-L6-v2",
            "MEMORY_EMBEDDER_URL": self.embedder, "PYTHONPATH": str(REPOSITORY / "recall"), "NO_COLOR": "1",
        }  # fmt: skip
        command = [sys.executable, "-m", "memory_recall", *arguments]
        done = subprocess.run(
            command, env={**os.environ, **settings}, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        if expected is not None and done.returncode != expected:
            raise RuntimeError(f"memory {' '.join(arguments)} ended with {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout


def sql_writer(dsn: str, create: str, insert: str, column: str, table: str) -> Write:
    """Return the writer of a store that is made by SQL: `insert` has `$1` for a text and `$2` for its owner."""
    made = list[str]()

    def write(texts: list[str]) -> str:
        if not made:
            _execute(dsn, create)
            made.append(table)
        for text in texts:
            _fetch(dsn, insert, text, OWNER)
        found = _fetch(dsn, f"SELECT {column} FROM {table} WHERE {column} ILIKE '%' || $1 || '%'", texts[0])
        return str(found[0][0]) if found else ""

    return write


def _rows(dsn: str, table: str, columns: list[str] | None = None) -> tuple[list[str], str | None]:
    """Return the columns that the table has, or those that are given, and a digest of the rows in them."""
    names = columns or [
        found[0]
        for found in _fetch(
            dsn,
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped "
            "ORDER BY attnum",
            _quoted(table),
        )
    ]
    quoted = ", ".join(f'"{name}"::text' for name in names)
    row = f"concat_ws('|', {quoted})"
    ((digest,),) = _fetch(dsn, f"SELECT md5(string_agg({row}, '|' ORDER BY {row})) FROM {_quoted(table)}")
    return names, digest


def _execute(dsn: str, statements: str) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(dsn)
        try:
            await connection.execute(statements)
        finally:
            await connection.close()

    asyncio.run(run())


def _fetch(dsn: str, statement: str, *values: str) -> list[Any]:
    async def run() -> list[Any]:
        connection = await asyncpg.connect(dsn)
        try:
            return list(await connection.fetch(statement, *values))
        finally:
            await connection.close()

    return asyncio.run(run())


def _quoted(table: str) -> str:
    return ".".join(f'"{part}"' for part in table.split("."))
