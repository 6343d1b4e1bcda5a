"""A stranger's store recalls by meaning from docs/adopt.md alone: its files and its commands, run as they stand there.

The page's shell runs in a folder of its own, with the programs of this virtual environment, psql of the test's Postgres
and a database of the test. `make setup`, which the page presupposes, has made what runs the test.
"""

import asyncio
import json
import os
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import BigInteger, Column, MetaData, Table, Text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from memory_recall.postgres.connection import DsnText
from memory_recall.schema.columns.names import ColumnNames
from memory_recall.schema.migrate import MigrationRequest, migrate
from memory_recall.schema.revisions import require_schema
from tests.integration.conftest import Database
from tests.support.foreign_stores import FOREIGN_STORES, ForeignStore
from tests.support.ports import reserved_ports

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "adopt.md").read_text()
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^(?:#|--) (\w+\.\w+)\n")
SECONDS = 120


def script(dsn: str, ports: list[int]) -> str:
    """The commands of the page in its order; only its first block, which names what is the reader's own, is changed."""
    first, *others = [text for kind, text in BLOCK.findall(PAGE) if kind == "sh"]
    names = ["DATABASE_URL", "EMBEDDER_PORT", "PROBE_PORT", "API_PORT"]
    assert re.findall(r"([A-Z_]+)=", first) == names
    own = "".join(f"export {name}={value}\n" for name, value in zip(names, [dsn, *ports], strict=True))
    # Whatever fails, nothing that the page has started outlives it.
    return "\n".join(["set -eu", "trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT", own, *others])


async def run(directory: Path, commands: str, environment: dict[str, str]) -> str:
    process = await asyncio.create_subprocess_exec(
        "bash", "-c", commands, cwd=directory, env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(SECONDS):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()[-4000:]
    return out.decode()


def environment_of(database: Database) -> dict[str, str]:
    """The programs and the sources of this checkout, and psql of the test's server."""
    programs = (str(Path(sys.executable).parent), str(database.server.program("psql").parent), os.environ["PATH"])
    paths = (ROOT / "recall", ROOT / "embedder-service", os.environ.get("PYTHONPATH", ""))
    return {"PATH": ":".join(programs), "PYTHONPATH": ":".join(map(str, paths)), "NO_COLOR": "1"}


async def test_a_store_of_another_shape_recalls_by_meaning_from_the_page_alone(
    database: Database, tmp_path: Path
) -> None:
    """Another table name, a key of type uuid, no mark of deletion, no users; pinned notes first, by its own code."""
    for kind, text in BLOCK.findall(PAGE):
        if kind in {"sql", "python"}:
            name = FILE.match(text)
            assert name is not None, f"a block does not begin with the name of its file: {text[:60]}"
            (tmp_path / name[1]).write_text(text)
    with reserved_ports(3) as ports:
        shown = await run(tmp_path, script(database.dsn, ports), environment_of(database))
    (line,) = [line for line in shown.splitlines() if '"author"' in line]
    answer = json.loads(line[line.index("[{") :].split("]")[0] + "]")
    assert {row["body"] for row in answer} >= {"The boiler in the cellar loses pressure every winter."}
    assert [row["pinned"] for row in answer] == sorted((row["pinned"] for row in answer), reverse=True)
    async with database.connection() as connection:
        counts = await connection.fetchrow("SELECT count(embedding), count(embedding) FILTER (WHERE secret) FROM notes")
        assert tuple(counts) == (3, 0)


@pytest.mark.parametrize("store", FOREIGN_STORES, ids=lambda store: store.name)
async def test_the_commands_for_each_store_by_name_adopt_it(
    store: ForeignStore, database: Database, tmp_path: Path
) -> None:
    commands = [
        line.removeprefix("$ ")
        for kind, text in BLOCK.findall(PAGE)
        for line in text.splitlines()
        if kind == "console" and re.search(rf"(TABLE|adopt) {re.escape(store.table)} ", line)
    ]
    assert commands[-1].startswith(" ".join(["memory adopt", store.table, *store.options, "--apply"]))
    async with database.connection() as connection:
        await connection.execute(store.create)
        await connection.execute(store.write, "The stove was swept.", "11111111-aaaa-4111-8111-111111111111")
    own = {"DATABASE_URL": database.dsn, "MEMORY_DATABASE_URL": database.dsn, "MEMORY_MODEL": "all-MiniLM-L6-v2"}
    await run(tmp_path, "\n".join(["set -eu", *commands]), {**environment_of(database), **own})
    async with database.connection() as connection:
        table = await require_schema(connection, store.table)
    assert {name: table.names.written(name) for name in store.used} == store.used


@pytest.mark.finding("database F20")
async def test_the_filter_for_alembic_keeps_autogenerate_from_dropping_what_is_ours(
    database: Database, request_for: Callable[..., MigrationRequest]
) -> None:
    """Without the filter, autogenerate proposes that; a column of the user's own is still compared."""
    async with database.connection() as connection:
        await connection.execute("CREATE TABLE notes (id bigint PRIMARY KEY, body text, old text)")
    names = ColumnNames.parse({"content": "body", "deleted_at": ""}, all_public=True)
    await migrate(DsnText(database.dsn), request_for(table="notes", columns=names))
    (source,) = [text for _, text in BLOCK.findall(PAGE) if text.startswith("# alembic_filter.py")]
    found: dict[str, Any] = {}
    exec(source, found)  # noqa: S102  (the page's own file)
    models = MetaData()
    Table("notes", models, Column("id", BigInteger, primary_key=True), Column("body", Text))
    engine = create_async_engine(database.dsn.replace("postgresql://", "postgresql+asyncpg://"), poolclass=NullPool)

    def compared(connection: Any, include_name: Any) -> list[str]:
        options = {"include_name": include_name} if include_name else {}
        with warnings.catch_warnings(action="ignore"):  # SQLAlchemy does not know the type of vectors
            return sorted(
                str(one[0]) for one in compare_metadata(MigrationContext.configure(connection, opts=options), models)
            )

    async with engine.connect() as connection:
        without = await connection.run_sync(compared, None)
        filtered = await connection.run_sync(compared, found["include_name"])
    assert without.count("remove_table") >= 5
    assert {"remove_index", "remove_column"} <= set(without)
    assert filtered == ["remove_column"], "the column old, which the models do not have"
