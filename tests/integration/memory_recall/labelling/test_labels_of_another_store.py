"""Labels are refused where their memories are not, and nothing of them is lost; what is removed is counted."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from click.testing import Result

from memory_recall.cli import page
from memory_recall.contrib.labelling.label_file import LabelFile
from memory_recall.contrib.labelling.labels import Asked, Origin
from memory_recall.postgres.connection import DsnText
from memory_recall.schema.migrate import MigrationRequest, migrate
from tests.integration.conftest import CopyOf, Database
from tests.integration.memory_recall.labelling.test_labelling_commands import memory
from tests.integration.memory_recall.read_path.test_evaluate_command import fill

LABELS = Path("labels.json")
COMMANDS = ("questions judge", "questions pool", "questions export", "page --everyone")


async def run(*arguments: str) -> Result:
    return await asyncio.to_thread(memory, *arguments, "--json")


@pytest.fixture
async def other(copy_of: CopyOf, request_for: Callable[..., MigrationRequest]) -> Database:
    """Another database, whose table has the same name and no row."""
    return await copy_of("migrated", lambda empty: migrate(DsnText(empty.dsn), request_for()))


@pytest.fixture
async def written(bench: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """The ids of four drawn memories, for each of which a question is written in the file of labels."""

    def served(_address: str) -> None:
        raise AssertionError("the page is served")

    monkeypatch.setattr(page, "announce_page", served)
    for name, value in bench.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    await fill(bench)
    drawn = await run("questions", "collect", str(LABELS), "--draw", "4", "--everyone")
    assert drawn.exit_code == 0, drawn.output
    file = LabelFile(LABELS)
    ids = sorted(file.labels.drawn)
    asked = [Asked.with_hashed_id(f"what about {one}?", stratum="written", conv=None, about=one) for one in ids]
    file.save(file.labels.after(*asked))
    return ids


def content() -> bytes:
    return LABELS.read_bytes()


def forget_origin() -> None:
    """Make the file one of a former release, which did not record where the memories are."""
    state = json.loads(content())
    assert state.pop("origin")
    LABELS.write_text(json.dumps(state))


@pytest.mark.parametrize("command", COMMANDS)
async def test_labels_of_another_database_are_refused_and_stay_as_they_are(
    written: Any, other: Database, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content()
    monkeypatch.setenv("MEMORY_DATABASE_URL", other.dsn)
    done = await run(*command.split(), str(LABELS))
    assert done.exit_code == 1
    message = json.loads(done.stderr)["message"]
    assert f"these are those of the table public.memories of the database {other.name}" in message
    assert "MEMORY_DATABASE_URL" in message
    assert content() == before


async def test_no_memories_of_another_database_are_drawn_into_the_same_file(
    written: Any, other: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content()
    monkeypatch.setenv("MEMORY_DATABASE_URL", other.dsn)
    done = await run("questions", "collect", str(LABELS), "--draw", "2", "--everyone")
    assert (done.exit_code, content()) == (1, before)


@pytest.mark.parametrize("command", COMMANDS)
async def test_labels_without_an_origin_are_refused_where_most_of_their_memories_are_missing(
    written: Any, other: Database, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_origin()
    before = content()
    monkeypatch.setenv("MEMORY_DATABASE_URL", other.dsn)
    done = await run(*command.split(), str(LABELS))
    assert done.exit_code == 1
    assert "Of the 4 memories" in json.loads(done.stderr)["message"]
    assert content() == before


async def test_labels_without_an_origin_get_the_one_where_their_memories_are(bench: Any, written: list[Any]) -> None:
    """Also where two of four are gone, whose questions are removed, which is said."""
    forget_origin()
    await bench.execute(f"DELETE FROM memories WHERE id = {written[0]}")
    await bench.execute(f"UPDATE memories SET is_sensitive = true WHERE id = {written[1]}")
    done = await run("questions", "export", str(LABELS))
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["withdrawn"] == 2
    labels = LabelFile(LABELS).labels
    assert labels.origin is not None
    assert (labels.origin.database, labels.origin.table) == (bench.database.name, "public.memories")
    assert {one.about for one in labels.questions} == set(written[2:])
    assert json.loads((await run("questions", "export", str(LABELS))).stdout)["withdrawn"] == 0


async def test_a_server_that_may_not_be_read_is_told_apart_by_its_database(
    bench: Any, written: list[Any], other: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = LabelFile(LABELS).labels.origin
    assert origin is not None
    assert origin.server is not None
    admin = await asyncpg.connect(bench.database.superuser_dsn)
    await admin.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
    await admin.close()
    done = await run("questions", "export", str(LABELS))
    assert done.exit_code == 0, done.stderr
    monkeypatch.setenv("MEMORY_DATABASE_URL", other.dsn)
    assert (await run("questions", "export", str(LABELS))).exit_code == 1


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({"server": None}, True),
        ({"server": "marked-0123456789abcdef"}, True),
        ({"server": "8"}, False),
        ({"database": "other"}, False),
        ({"table": "public.others"}, False),
    ],
)
def test_an_origin_is_the_same_unless_something_tells_it_apart(change: dict[str, Any], same: bool) -> None:
    origin = Origin(server="7", database="app", table="public.memories")
    other = origin.model_copy(update=change)
    assert (origin.may_be(other), other.may_be(origin)) == (same, same)
