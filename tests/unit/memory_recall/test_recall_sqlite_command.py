"""`memory recall --sqlite` searches a local file, without Postgres, embedder or network."""

import json
import sqlite3
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from memory_recall.cli.app import create_app
from tests.support.sqlite_schema import create_schema


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file whose name a careless URI would cut."""
    found = tmp_path / "notes of #ana?.db"
    with sqlite3.connect(found) as connection:
        create_schema(connection)
        connection.execute("INSERT INTO memories (content, user_id) VALUES ('the zigbee dongle hangs', 'ana')")
        connection.execute("INSERT INTO memories (content, user_id, is_sensitive) VALUES ('zigbee key 0x5A', 'ben', 1)")
    connection.close()
    return found


def recall(*arguments: object) -> Result:
    return CliRunner().invoke(create_app(), ["recall", *map(str, arguments)])


def test_a_file_is_searched_without_any_setting(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And without a sensitive memory of another user."""
    monkeypatch.delenv("MEMORY_DATABASE_URL", raising=False)
    done = recall("zigbee", "--everyone", "--sqlite", file, "--json")
    assert [memory["content"] for memory in json.loads(done.stdout)["memories"]] == ["the zigbee dongle hangs"]
    assert "the zigbee dongle hangs" in recall("zigbee", "--user", "ana", "--sqlite", file, "--explain").stdout


def test_a_recall_cannot_change_the_file(file: Path) -> None:
    before = file.read_bytes()
    assert recall("zigbee", "--everyone", "--sqlite", file).exit_code == 0
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "There is no file"), (b"no database" * 100, "cannot be read as a SQLite database"), (b"", "has no table")],
    ids=["missing", "other", "empty"],
)
def test_a_file_that_cannot_be_searched_is_named(content: bytes | None, said: str, tmp_path: Path) -> None:
    """A missing one is not made."""
    file = tmp_path / "memories.db"
    if content is not None:
        file.write_bytes(content)
    done = recall("zigbee", "--everyone", "--sqlite", file, "--json")
    assert done.exit_code == 1
    refused = json.loads(done.stderr)
    assert refused["reason"] == "InvalidInput"
    assert said in refused["message"]
    assert file.exists() is (content is not None)


def test_the_dense_leg_alone_is_refused(file: Path) -> None:
    """The lexical leg's answer would go under another mode's name."""
    done = recall("zigbee", "--everyone", "--sqlite", file, "--mode", "dense", "--json")
    assert "by words alone" in json.loads(done.stderr)["message"]


def test_a_file_is_not_searched_by_further_words(file: Path) -> None:
    """No language model is asked for it, so that the option is refused rather than ignored."""
    done = recall("zigbee", "--everyone", "--sqlite", file, "--expand", "http://llm:8080", "--json")
    assert (done.exit_code, json.loads(done.stderr)["reason"]) == (1, "InvalidInput")
    assert "--expand" in json.loads(done.stderr)["message"]
