"""Whatever embedder and database do to a backfill, it loses no finished row, blames no innocent one, and ends."""

import asyncio
import json

import numpy as np
import pytest

from memory_recall.errors import DimensionMismatch, EmbedderUnauthorized, EmbedderUnavailable
from memory_recall.indexing.quarantine_sql import listed, retry
from memory_recall.postgres.connection import DsnText, connect
from memory_recall.schema.revisions import require_schema
from tests.integration.memory_recall.fake_embedder import Answer, good_answer, vector_of
from tests.integration.memory_recall.workbench import DIMENSIONS, Workbench, until

POISON = "poison"


def _error(status: int, **headers: str) -> Answer:
    body = {"error": {"message": "echo of the canary text", "type": "t", "code": "c"}}
    return status, headers, json.dumps(body).encode()


def _nan(texts: list[str]) -> Answer:
    vectors = [vector_of(text, DIMENSIONS) for text in texts]
    for text, vector in zip(texts, vectors, strict=True):
        if text == POISON:
            vector[0] = np.nan
    return good_answer(vectors)


async def _failures(bench: Workbench) -> list[tuple[int, int, str, bool]]:
    connection = await connect(DsnText(bench.database.dsn))
    try:
        rows = await listed(connection, await require_schema(connection, "memories"))
    finally:
        connection.terminate()
    return [(row.id, row.attempts, row.error_class, row.next_attempt is None) for row in rows]


@pytest.mark.promise("bad-text-costs-itself")
@pytest.mark.parametrize(
    ("behaviour", "error_class"),
    [
        (lambda texts: _error(422) if POISON in texts else None, "EmbedderRejected"),
        (lambda texts: _error(400) if POISON in texts else None, "EmbedderRejected"),
        (lambda texts: (200, {}, b"<html>") if POISON in texts else None, "EmbedderBroken"),
        (lambda texts: good_answer([]) if POISON in texts else None, "EmbedderBroken"),
        (_nan, "EmbedderBroken"),
    ],
    ids=["422", "400", "garbage", "too few vectors", "NaN"],
)
async def test_only_the_row_that_cannot_be_embedded_is_quarantined(
    bench: Workbench, behaviour: object, error_class: str
) -> None:
    await bench.insert(*(f"text {number}" for number in range(30)), POISON, *(f"more {number}" for number in range(9)))
    bench.embedder.behaviour = behaviour  # type: ignore[assignment]
    result = await bench.backfill()
    assert (result.tally.embedded, result.tally.quarantined) == (39, 1)
    attempts = 1 if error_class == "EmbedderRejected" else 3  # a refusal of the text is final
    assert await _failures(bench) == [(31, attempts, error_class, True)]
    assert await bench.problems() == [(31, "missing")]


@pytest.mark.finding("embedder 1")
async def test_a_row_without_a_finite_vector_is_quarantined_at_once_and_the_others_are_embedded(
    bench: Workbench,
) -> None:
    """The embedder names such rows beside the vectors of the others, so that nothing is sent or tried again."""
    texts = [f"{POISON} {number}" if number in {0, 7, 39} else f"text {number}" for number in range(40)]
    await bench.insert(*texts)
    bench.embedder.unusable = lambda text: POISON in text
    result = await bench.backfill()
    assert (result.tally.embedded, result.tally.quarantined, result.complete) == (37, 3, True)
    assert await _failures(bench) == [(row, 1, "UnusableText", True) for row in (1, 8, 40)]
    assert sorted(row for row, _ in await bench.problems()) == [1, 8, 40]
    assert max(bench.embedder.received.values()) == 1


@pytest.mark.finding("embedder 1")
async def test_an_embedder_that_computes_nothing_finite_for_any_text_quarantines_nothing(bench: Workbench) -> None:
    """Its own fault, which a restart or another file may mend."""
    await bench.insert(*(f"text {number}" for number in range(5)))
    answers = iter(range(6))
    bench.embedder.unusable = lambda _text: next(answers, None) is not None
    result = await bench.backfill()
    assert (result.tally.embedded, result.tally.quarantined) == (5, 0)


@pytest.mark.finding("embedder 1")
async def test_rows_that_are_all_without_a_finite_vector_are_quarantined_where_the_embedder_works(
    bench: Workbench,
) -> None:
    await bench.insert(POISON, f"{POISON} too")
    bench.embedder.unusable = lambda text: POISON in text
    assert (await bench.backfill()).tally.quarantined == 2
    assert await _failures(bench) == [(row, 1, "UnusableText", True) for row in (1, 2)]


@pytest.mark.finding("embedder 1")
async def test_an_empty_text_is_quarantined_at_once(bench: Workbench) -> None:
    await bench.insert("  ", "fine")
    assert (await bench.backfill()).tally.quarantined == 1
    assert await _failures(bench) == [(1, 1, "EmptyText", True)]


async def test_a_row_that_crashes_the_embedder_is_found_although_the_embedder_recovers(bench: Workbench) -> None:
    await bench.insert(*(f"text {number}" for number in range(7)), POISON)
    bench.embedder.behaviour = lambda texts: _error(500) if POISON in texts else None
    result = await bench.backfill()
    assert (result.tally.embedded, result.tally.quarantined) == (7, 1)
    assert [row[2] for row in await _failures(bench)] == ["EmbedderUnavailable"]


async def test_a_row_that_ends_the_only_embedder_is_quarantined_although_it_takes_a_while_to_start(
    bench: Workbench,
) -> None:
    """While it starts it fails the test text too, so that alone tells nothing about the row."""
    refusals_left = 0

    def behaviour(texts: list[str]) -> Answer | None:
        nonlocal refusals_left
        if POISON in texts:
            refusals_left = 2
            return _error(500)
        if refusals_left:
            refusals_left -= 1
            return _error(503)
        return None

    await bench.insert("fine", POISON)
    bench.embedder.behaviour = behaviour
    async with asyncio.timeout(120):
        result = await bench.backfill()
    assert (result.tally.embedded, result.tally.quarantined) == (1, 1)


async def test_quarantined_rows_are_not_embedded_until_they_are_released_or_edited(bench: Workbench) -> None:
    await bench.insert(POISON, "fine")
    bench.embedder.behaviour = lambda texts: _error(422) if POISON in texts else None
    await bench.backfill()
    requests = bench.embedder.requests
    assert (await bench.backfill()).tally.read == 0
    assert bench.embedder.requests == requests
    bench.embedder.behaviour = lambda _texts: None
    connection = await connect(DsnText(bench.database.dsn))
    assert await retry(connection, await require_schema(connection, "memories"), None) == [1]
    connection.terminate()
    assert (await bench.backfill()).tally.embedded == 1
    assert await _failures(bench) == []


async def test_an_edited_quarantined_row_is_tried_again(bench: Workbench) -> None:
    await bench.insert(POISON)
    bench.embedder.behaviour = lambda texts: _error(422) if POISON in texts else None
    await bench.backfill()
    await bench.execute("UPDATE memories SET content = 'harmless'")
    assert (await bench.backfill()).tally.embedded == 1
    assert await bench.problems() == []


async def test_a_broken_embedder_quarantines_nothing(bench: Workbench) -> None:
    """It answers nothing useful until it has been asked for the test text five times.

    A row alone that is answered so just before may count as failed once; it is tried again.
    """
    await bench.insert(*(f"text {number}" for number in range(20)))
    garbage: Answer = (200, {}, b"garbage")
    tests = 0

    def behaviour(texts: list[str]) -> Answer | None:
        nonlocal tests
        tests += not any(text.startswith("text ") for text in texts)
        return garbage if tests < 5 else None

    bench.embedder.behaviour = behaviour
    result = await bench.backfill()
    assert (result.tally.embedded, result.tally.quarantined) == (20, 0)
    assert await bench.problems() == []


@pytest.mark.parametrize("status", [429, 503])
async def test_a_busy_embedder_is_waited_for_and_no_row_is_quarantined(bench: Workbench, status: int) -> None:
    await bench.insert(*(f"text {number}" for number in range(20)))
    answers = iter([_error(status, **{"retry-after": "0.05"})] * 6)
    bench.embedder.behaviour = lambda _texts: next(answers, None)
    result = await bench.backfill()
    assert (result.tally.embedded, result.tally.failed, result.tally.quarantined) == (20, 0, 0)
    assert max(bench.embedder.received[f"text {number}"] for number in range(20)) == 1


async def test_a_hanging_request_is_cancelled_and_repeated(bench: Workbench) -> None:
    await bench.insert(*(f"text {number}" for number in range(10)))
    bench.client_timeout = 0.5
    hangs = iter([30.0])
    bench.embedder.behaviour = lambda _texts: next(hangs, None)
    assert (await bench.backfill()).tally.embedded == 10
    assert await bench.problems() == []


async def test_an_embedder_that_yields_other_dimensions_ends_the_backfill_and_writes_nothing(bench: Workbench) -> None:
    await bench.insert("text")
    bench.embedder.behaviour = lambda texts: good_answer([vector_of(text, 16) for text in texts])
    with pytest.raises(DimensionMismatch):
        await bench.backfill()
    assert await bench.embedded() == 0


async def test_a_refused_api_key_ends_the_backfill(bench: Workbench) -> None:
    await bench.insert("text")
    bench.embedder.behaviour = lambda _texts: _error(401)
    with pytest.raises(EmbedderUnauthorized):
        await bench.backfill()


async def test_an_embedder_that_vanishes_and_returns_is_waited_for(bench: Workbench) -> None:
    await bench.insert(*(f"text {number}" for number in range(120)))
    bench.embedder.hold_after(4)
    task = asyncio.create_task(bench.backfill())
    await bench.embedder.held.wait()
    await bench.embedder.stop()
    await until(lambda: "embedder" in bench.ear.outages)
    bench.embedder.release()
    await bench.embedder.start()
    result = await task
    assert result.tally.failed == 0
    assert await bench.problems() == []


async def test_an_embedder_that_never_returns_ends_the_backfill_with_a_clear_error(bench: Workbench) -> None:
    await bench.insert("text")
    await bench.embedder.stop()
    bench.plan = type(bench.plan)(table="memories", options=bench.plan.options, outage_timeout=0.3)
    with pytest.raises(EmbedderUnavailable, match="could not be reached"):
        await bench.backfill()
