"""The observer of an hour of faults finds exactly what is planted, in a table that the product has not touched."""

import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.integration.conftest import Database
from tests.integration.memory_recall.fake_embedder import Answer, FakeEmbedder, vector_of
from tests.soak import users
from tests.soak.ledger import State
from tests.soak.stores import NAMED, Store
from tests.soak.users import KEPT_SECONDS, Checks, Observer

DIMENSIONS = 8
ROWS = ("first", "second", "third")
CONCEPTS = "CREATE TABLE app.memory_concepts (memory_id uuid, concept text)"


@dataclass
class Planted:
    """A store with three rows, each with its vector, that are as they were written two minutes ago."""

    store: Store
    connection: Any
    observer: Observer
    checks: Checks
    keys: dict[str, str]

    async def change(self, assignment: str, row: str = "first") -> None:
        """Change a row behind the back of who wrote it."""
        statement = f"UPDATE {self.store.relation} SET {assignment} WHERE {self.store.id}::text = $1"
        await self.connection.execute(statement, self.keys[row])

    def write(self, row: str = "first", seconds_ago: float = 2 * KEPT_SECONDS, **changes: Any) -> None:
        """Record a write that was confirmed so long ago."""
        ledger, at = self.observer.ledgers[self.store.name], time.monotonic() - seconds_ago
        last = ledger.rows[self.keys[row]][-1]
        ledger.write(self.keys[row], replace(last, began=at, confirmed=at, **changes))

    async def found(self) -> dict[str, list[str]]:
        """Look at the store once, and return what was found wrong."""
        await self.checks._check(self.store)
        return self.observer.wrong


def floats(texts: list[str]) -> Answer:
    """Answer with vectors as lists of numbers, as the observer asks for them."""
    data = [{"index": index, "embedding": list(map(float, vector_of(text, DIMENSIONS)))}
            for index, text in enumerate(texts)]  # fmt: skip
    return 200, {}, json.dumps({"data": data}).encode()


def stored(text: str) -> str:
    return json.dumps(list(map(float, vector_of(text, DIMENSIONS))))


@pytest.fixture
async def planted(database: Database, tmp_path: Path) -> AsyncIterator[Planted]:
    """A table with another column than that of the present model's vectors, as while models are exchanged."""
    observer, dsn, store = Observer(), tmp_path / "dsn", NAMED
    dsn.write_text(database.dsn)
    async with database.connection() as connection, FakeEmbedder(dimensions=DIMENSIONS) as embedder:
        embedder.behaviour = floats
        await connection.execute(store.create + CONCEPTS)
        await connection.execute(
            f"ALTER TABLE {store.relation} ADD {store.vector} halfvec({DIMENSIONS}), ADD another vector({DIMENSIONS})"
        )
        made = Planted(
            store,
            connection,
            observer,
            Checks(observer, {store.name: {"direct_file": str(dsn), "embedder": embedder.url}}),
            {row: store.key_of(number) for number, row in enumerate(ROWS)},
        )
        began = time.monotonic() - 3 * KEPT_SECONDS
        for number, row in enumerate(ROWS):
            marker = f"zq{number:014x}"
            state = State(marker, "ada", sensitive=False, deleted=False, began=began, confirmed=began)
            observer.ledgers[store.name].write(made.keys[row], state)
            text = f"{marker} {row}"
            await connection.execute(store.upsert, made.keys[row], "ada", text, state.sensitive, state.deleted)
            await made.change(f"{store.vector} = '{stored(text)}'", row)
        yield made


async def test_nothing_is_found_where_all_is_as_it_was_written(planted: Planted) -> None:
    assert await planted.found() == {}
    assert await planted.checks.compare(planted.store) == {"rows": 3, "lost": 0, "pending": 0}
    assert planted.observer.wrong == {}
    assert planted.checks.made == {planted.store.name: 1}


@pytest.mark.parametrize("column", ["embedding", "another"])
async def test_a_vector_of_a_sensitive_row_is_found_in_each_column(planted: Planted, column: str) -> None:
    planted.write(seconds_ago=1, sensitive=True)
    await planted.change('"isSecret" = true, embedding = NULL')
    assert await planted.found() == {}
    await planted.change(f"{column} = '{stored('whatever')}'")
    planted.checks.swapping.add(planted.store.name)
    assert await planted.found() == {"leak": [f"1 vectors of sensitive or removed rows in {planted.store.name}"]}


@pytest.mark.parametrize("change", [{"sensitive": True}, {"removed": True}], ids=["sensitive", "removed"])
async def test_a_link_is_found_once_its_row_has_been_sensitive_or_removed_for_a_minute(
    planted: Planted, change: dict[str, bool]
) -> None:
    await planted.connection.execute("INSERT INTO app.memory_concepts VALUES ($1, 'x')", planted.keys["first"])
    if "removed" in change:
        await planted.connection.execute(planted.store.removal, planted.keys["first"])
    else:
        await planted.change('"isSecret" = true, embedding = NULL')
    planted.write(seconds_ago=KEPT_SECONDS / 2, **change)
    assert await planted.found() == {}
    last = planted.observer.ledgers[planted.store.name].rows[planted.keys["first"]][-1]
    last.began = last.confirmed = time.monotonic() - KEPT_SECONDS - 1
    found = f"1 links of rows sensitive or removed for a minute in {planted.store.name}"
    assert await planted.found() == {"leak": [found]}


@pytest.mark.parametrize(
    "written",
    [{"marker": "zq000000000000ff"}, {"sensitive": True}, {"deleted": True}, {"owner": "bob"}, {"removed": True}],
    ids=["a text", "a marking", "a deletion", "a change of owner", "a removal"],
)
async def test_a_write_that_the_table_does_not_have_is_found_lost_during_the_run_and_at_its_end(
    planted: Planted, written: dict[str, Any]
) -> None:
    planted.write(**written)
    await planted.change("embedding = NULL")  # so that it is not a leak as well
    (lost,) = (await planted.found())["lost"]
    assert lost.startswith(f"{planted.keys['first']} of {planted.store.name} is zq{0:014x} of ada, read at ")
    assert (await planted.checks.compare(planted.store))["lost"] == 1
    assert len(planted.observer.wrong["lost"]) == 2
    assert [*planted.observer.wrong] == ["lost"]


async def test_a_row_that_vanished_is_found_lost_during_the_run_and_at_its_end(planted: Planted) -> None:
    await planted.connection.execute(planted.store.removal, planted.keys["second"])
    (lost,) = (await planted.found())["lost"]
    assert lost.startswith(f"{planted.keys['second']} of {planted.store.name} is absent, read at ")
    assert await planted.checks.compare(planted.store) == {"rows": 2, "lost": 1, "pending": 0}


@pytest.mark.parametrize("failing", ["links", "samples"])
async def test_what_was_found_wrong_is_said_also_if_the_next_statement_fails(
    planted: Planted, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    planted.write(sensitive=True)
    await planted.connection.execute("INSERT INTO app.memory_concepts VALUES ($1, 'x')", planted.keys["first"])
    if failing == "links":
        await planted.connection.execute("DROP TABLE app.memory_concepts")
    else:
        monkeypatch.setattr(users, "_SAMPLES", "SELECT 1 / 0")
    with pytest.raises(asyncpg.PostgresError):
        await planted.found()
    found = {kind: len(found) for kind, found in planted.observer.wrong.items()}
    assert found == ({"leak": 1} if failing == "links" else {"leak": 2, "lost": 1})


async def test_a_vector_of_a_row_that_was_unmarked_just_before_it_was_looked_for_is_right(
    planted: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    for row in ("first", "second"):
        await planted.change('"isSecret" = true, embedding = NULL', row)
        planted.write(row, sensitive=True)
    waiting = ["first", "second"]

    async def fetched(connection: Any, query: str, *given: Any, **options: Any) -> Any:
        if "typname" in query and waiting:
            row = waiting.pop()
            planted.write(row, seconds_ago=0, sensitive=False)
            await planted.change(f"\"isSecret\" = false, embedding = '{stored('whatever')}'", row)
        return await execute(connection, query, *given, **options)

    execute = asyncpg.Connection._execute  # type: ignore[attr-defined]
    monkeypatch.setattr(asyncpg.Connection, "_execute", fetched)
    planted.checks.swapping.add(planted.store.name)  # so that it is not stale as well
    assert await planted.found() == {}
    assert waiting == ["first"]


@pytest.mark.parametrize("vector", [stored("another text"), json.dumps([0.0] * DIMENSIONS)], ids=["other", "zeros"])
async def test_a_vector_of_another_text_is_found_stale_except_while_models_are_exchanged(
    planted: Planted, vector: str
) -> None:
    await planted.change(f"embedding = '{vector}'", "third")
    planted.checks.swapping.add(planted.store.name)
    assert await planted.found() == {}
    planted.checks.swapping.discard(planted.store.name)
    (stale,) = (await planted.found())["stale"]
    assert stale.startswith(f"vector of zq{2:014x}: cosine ")
    await planted.checks.compare(planted.store)
    assert len(planted.observer.wrong["stale"]) == 2
    assert [*planted.observer.wrong] == ["stale"]


async def test_a_row_without_a_vector_is_pending_at_the_end_unless_it_is_sensitive_or_deleted(planted: Planted) -> None:
    for row, change in (("first", {"sensitive": True}), ("second", {"deleted": True}), ("third", {})):
        await planted.change("embedding = NULL", row)
        if change:
            planted.write(row, **change)
    await planted.change('"isSecret" = true')
    await planted.change('"deletedAt" = now()', "second")
    assert await planted.checks.compare(planted.store) == {"rows": 3, "lost": 0, "pending": 1}
