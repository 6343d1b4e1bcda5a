"""Uses the filter `min_importance` in the library, the router, the command line and SQLite mode; run in a patched tree.

It is a program of its own, so that the patched tree's code is what it imports. It fails where one of them does not take
the filter, or does not leave out the memory below it.
"""

import asyncio
import sqlite3
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from typer.testing import CliRunner

import memory_recall
from memory_recall import EVERYONE, Filters, InvalidInput, RecallQuery
from memory_recall.cli import reading
from memory_recall.cli.app import create_app
from memory_recall.contrib.fastapi import create_recall_router
from memory_recall.contrib.sqlite import SqliteRecall
from memory_recall.schema.table import MemoryTable
from memory_recall.search.sql.plan import RecallPlan
from memory_recall.search.sql.statement import statement
from tests.support.sqlite_schema import create_schema


class Searched:
    """A recall over SQLite behind the interface of `HybridRecall`."""

    def __init__(self) -> None:
        connection = sqlite3.connect(":memory:", check_same_thread=False)
        create_schema(connection)
        rows = [("a kettle of low importance", 0.6), ("a kettle of just enough", 0.7), ("a kettle of high", 0.9)]
        connection.executemany("INSERT INTO memories (content, importance, user_id) VALUES (?, ?, 'ana')", rows)
        self.recall_now = SqliteRecall(connection).recall

    async def recall(self, query: RecallQuery) -> Any:
        return self.recall_now(query)


def check_library() -> None:
    table = MemoryTable("public", "memories", {"importance": "real", "deleted_at": "timestamptz"}, None, None)
    query = RecallQuery("kettle", user_id=EVERYONE, filters=Filters(min_importance=0.7))  # type: ignore[call-arg]  # of the patched tree
    sql, arguments = statement(RecallPlan(query, table))
    place = arguments.index(0.7) + 1
    assert f"m.importance >= ${place}::real" in sql, sql
    with pytest.raises(InvalidInput, match="min_importance"):
        Filters(min_importance=1.5)  # type: ignore[call-arg]  # of the patched tree


def check_sqlite(searched: Searched) -> None:
    query = RecallQuery("kettle", user_id=EVERYONE, filters=Filters(min_importance=0.7))  # type: ignore[call-arg]  # of the patched tree
    assert set(searched.recall_now(query).ids) == {2, 3}


async def check_router(searched: Any) -> None:
    app = FastAPI()
    app.include_router(create_recall_router(searched, current_user=lambda: "ana"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api") as http:
        body = {"context": "kettle", "min_importance": 0.7}
        answer = (await http.post("/api/memories/recall", json=body)).json()
        assert {memory["id"] for memory in answer["memories"]} == {2, 3}, answer
        refused = await http.post("/api/memories/recall", json={**body, "min_importance": 7})
        assert refused.status_code == 422


def check_command_line(searched: Searched) -> None:
    @asynccontextmanager
    async def opened(*_arguments: object, **_options: object) -> Any:
        yield searched, None

    reading.opened_recall = opened
    shown = CliRunner().invoke(create_app(), ["recall", "kettle", "--everyone", "--min-importance", "0.7"])
    assert shown.exit_code == 0, shown.output
    assert "just enough" in shown.stdout
    assert "low importance" not in shown.stdout


if __name__ == "__main__":
    assert Path(memory_recall.__file__).is_relative_to(Path.cwd()), "the tree's own library is not what was imported"
    check_library()
    check_sqlite(Searched())
    asyncio.run(check_router(Searched()))
    check_command_line(Searched())
