"""Rows are confirmed on the connection to the embedder, which is not kept waiting for the database."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np
import pytest

from memory_recall.embedding.bounded_answer import BeforeSending
from memory_recall.embedding.wire import EmbeddedBatch
from memory_recall.errors import DatabaseUnreachable
from memory_recall.indexing import sendable_rows
from memory_recall.indexing.queue_sql import PendingRow
from memory_recall.indexing.sendable_rows import SendableRows

ROWS = [PendingRow(number, f"text {number}", "hash") for number in range(3)]


class Embedder:
    """Embeds what is confirmed; `asked` has the texts of every attempt, and `embedded` those that were sent."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.embedded: list[list[str]] = []
        self.given_up = asyncio.Event()

    async def embed(self, texts: Sequence[str], *, before_sending: BeforeSending) -> EmbeddedBatch:
        self.asked.append(list(texts))
        try:
            await before_sending()
        except BaseException:
            self.given_up.set()
            raise
        self.embedded.append(list(texts))
        return EmbeddedBatch(np.zeros((len(texts), 2), dtype=np.float32), 0)


class Database:
    """Answers after the given delays, the last of which lasts; `sendable` says which rows may be sent."""

    def __init__(self, *delays: float, sendable: Callable[[PendingRow], bool] = lambda _row: True) -> None:
        self._delays = list(delays)
        self._sendable = sendable
        self.looked_up = 0

    async def run(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        return await work(None)

    async def look_up(self, _connection: Any, rows: Sequence[PendingRow]) -> list[PendingRow]:
        self.looked_up += 1
        await asyncio.sleep(self._delays.pop(0) if len(self._delays) > 1 else self._delays[0])
        return [row for row in rows if self._sendable(row)]

    @property
    def rows(self) -> SendableRows:
        return SendableRows(self.run, self.look_up)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sendable_rows, "_OLDEST_SECONDS", 0.05)
    monkeypatch.setattr(sendable_rows, "_CONFIRM_SECONDS", 0.2)


async def test_rows_are_looked_up_once_where_nothing_has_changed() -> None:
    embedder, database = Embedder(), Database(0.0)
    sent, batch = await database.rows.send(ROWS, embedder.embed)
    assert (sent, database.looked_up, len(embedder.embedded)) == (ROWS, 1, 1)
    assert batch is not None


async def test_only_rows_that_may_be_sent_are() -> None:
    embedder, database = Embedder(), Database(0.0, sendable=lambda row: row.id != 1)
    sent, _ = await database.rows.send(ROWS, embedder.embed)
    assert [row.id for row in sent] == [0, 2]
    assert embedder.embedded == [["text 0", "text 2"]]


async def test_where_none_may_be_sent_the_embedder_gets_none() -> None:
    embedder, database = Embedder(), Database(0.0, sendable=lambda _row: False)
    assert await database.rows.send(ROWS, embedder.embed) == ([], None)
    assert embedder.embedded == []


async def test_an_outage_of_the_database_is_waited_for_without_a_connection_to_the_embedder() -> None:
    """The embedder ends a request whose body does not come, which would count as a failure of the rows."""
    embedder, back = Embedder(), asyncio.Event()

    async def run(work: Callable[[Any], Awaitable[Any]]) -> Any:
        await back.wait()
        return await work(None)

    task = asyncio.create_task(SendableRows(run, Database(0.0).look_up).send(ROWS, embedder.embed))
    async with asyncio.timeout(10):
        await embedder.given_up.wait()
    assert (embedder.embedded, task.done()) == ([], False)
    back.set()
    sent, _ = await task
    assert (sent, len(embedder.asked)) == (ROWS, 2)


async def test_an_answer_that_took_long_is_not_relied_on() -> None:
    embedder, database = Embedder(), Database(0.1, 0.0)
    sent, _ = await database.rows.send(ROWS, embedder.embed)
    assert (sent, len(embedder.asked), len(embedder.embedded)) == (ROWS, 2, 1)


async def test_a_database_that_is_always_slow_keeps_no_text_from_being_sent_at_last() -> None:
    embedder, database = Embedder(), Database(0.1)
    sent, _ = await database.rows.send(ROWS, embedder.embed)
    assert (sent, len(embedder.asked), len(embedder.embedded)) == (ROWS, sendable_rows._ATTEMPTS + 1, 1)


async def test_a_database_that_never_answers_in_time_is_an_error_and_no_text_is_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a limit the worker would go on for ever, embed nothing, and say nothing."""
    monkeypatch.setattr(sendable_rows, "_CONFIRM_SECONDS", 0.01)
    monkeypatch.setattr(sendable_rows, "_MOST_UNANSWERED", 3)
    embedder, database = Embedder(), Database(0.03)
    async with asyncio.timeout(10):
        with pytest.raises(DatabaseUnreachable, match="3 times in a row, so no text was sent"):
            await database.rows.send(ROWS, embedder.embed)
    assert (len(embedder.asked), embedder.embedded) == (3, [])


async def test_unanswered_attempts_that_are_not_in_a_row_are_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each second attempt is answered, though too late to be relied on, and the last one in time."""
    monkeypatch.setattr(sendable_rows, "_MOST_UNANSWERED", 2)
    slow, late, soon = 0.3, 0.1, 0.0
    embedder, database = Embedder(), Database(slow, soon, late, soon, slow, soon, soon)
    sent, _ = await database.rows.send(ROWS, embedder.embed)
    assert (sent, len(embedder.asked)) == (ROWS, 4)
