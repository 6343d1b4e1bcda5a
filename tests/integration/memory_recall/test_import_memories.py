"""An import stores all lines or none, says which line is wrong, and may be repeated."""

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import pytest

from memory_recall.errors import DatabaseRejected, InvalidInput
from memory_recall.postgres.connection import DsnText, connect
from memory_recall.schema.table import describe
from memory_recall.transfer.import_jsonl import ImportResult, import_memories
from tests.integration.memory_recall.workbench import Workbench

CANARY = "the canary stands in a memory"


async def load(bench: Workbench, lines: Iterable[bytes]) -> ImportResult:
    connection = await connect(DsnText(bench.database.dsn))
    try:
        return await import_memories(connection, await describe(connection, "memories"), lines)
    finally:
        connection.terminate()


def line(key: int, **fields: Any) -> bytes:
    return json.dumps({"id": key, "content": f"text {key}", **fields}).encode() + b"\n"


async def test_all_fields_are_stored_and_conv_is_the_user(bench: Workbench) -> None:
    result = await load(
        bench,
        [
            line(7, conv="conv-1", category="c", tags=["a", "b"], expanded_keywords="k", importance=0.25),
            line(9, user_id="me", conv="ignored", is_sensitive=1, created_at="2024-05-01T10:00:00"),
            b"\n",
        ],
    )
    assert (result.read, result.inserted, result.sensitive) == (2, 2, 1)
    async with bench.database.connection() as connection:
        first, second = await connection.fetch("SELECT * FROM memories ORDER BY id")
    assert (first["id"], first["user_id"], first["tags"], first["importance"]) == (7, "conv-1", "a,b", 0.25)
    assert (second["user_id"], second["is_sensitive"]) == ("me", True)
    assert second["created_at"].isoformat() == "2024-05-01T10:00:00+00:00"


async def test_new_rows_get_ids_past_the_imported_ones(bench: Workbench) -> None:
    await load(bench, [line(41)])
    assert await bench.value("INSERT INTO memories (content) VALUES ('next') RETURNING id") == 42
    await load(bench, [line(3)])
    assert await bench.value("INSERT INTO memories (content) VALUES ('next') RETURNING id") == 43


async def test_importing_again_changes_nothing_and_a_changed_line_changes_its_row(bench: Workbench) -> None:
    lines = [line(key) for key in range(1, 51)]
    await load(bench, lines)
    await bench.backfill()
    assert (await load(bench, lines)).unchanged == 50
    assert await bench.embedded() == 50
    lines[4] = line(5, content="edited")
    result = await load(bench, lines)
    assert (result.updated, result.unchanged, result.inserted) == (1, 49, 0)
    assert await bench.embedded() == 49
    await bench.backfill()
    assert await bench.problems() == []


async def test_an_old_export_does_not_make_a_row_public_again(bench: Workbench) -> None:
    await load(bench, [line(1), line(2)])
    await bench.execute("UPDATE memories SET is_sensitive = true")
    await load(bench, [line(1, importance=0.9), line(2, is_sensitive=False)])
    assert await bench.value("SELECT array_agg(is_sensitive ORDER BY id) FROM memories") == [True, False]


async def test_sensitive_rows_are_stored_and_never_embedded(bench: Workbench) -> None:
    await load(bench, [line(1), line(2, content=CANARY, is_sensitive=True)])
    await bench.backfill()
    assert await bench.embedded() == 1
    assert CANARY not in bench.embedder.received


@pytest.mark.parametrize(
    ("bad", "complaint"),
    [
        (b'{"id": 3, "content": ' + CANARY.encode() + b"}\n", "line 3: malformed JSON"),
        (b"\xff\xfe\n", "line 3: malformed JSON"),
        (b'["' + CANARY.encode() + b'"]\n', "line 3: the line: input should be"),
        (b'{"content": "' + CANARY.encode() + b'"}\n', "line 3: id: field required"),
        (b'{"id": 3}\n', "line 3: content: field required"),
        (line(3, content="  "), "line 3: content is empty"),
        (line(3, content=CANARY + "\0"), "line 3: content contains a NUL"),
        (line(3, tags="a\0b"), "line 3: tags contains a NUL"),
        (line(3, content=[CANARY]), "line 3: content: input should be a valid string"),
        (line(3, importance="much"), "line 3: importance: input should be a valid number"),
        (line(3, importance=float("nan")), "line 3: malformed JSON"),
        (line(3, is_sensitive=CANARY), "line 3: is_sensitive: input should be a valid boolean"),
        (line(3, category=CANARY * 3), "line 3: category: string should have at most 50 characters"),
        (line(3, created_at=CANARY), "line 3: created_at: input should be a valid datetime"),
        (b'{"id": "3", "content": "x"}\n', "line 3: id: input should be a valid integer"),
        (line(3, user_id="u" * 101), "line 3: user_id: string should have at most 100 characters"),
        (line(3, user_id="u" * 1_000_001), "line 3: user_id: string should have at most 1000000 characters"),
        (line(3, expanded_keywords=["a", "b\0"]), "line 3: expanded_keywords contains a NUL"),
        (line(-(2**31) - 1), "line 3: id is smaller than the table's integer key"),
        (line(2**31), "line 3: id is larger than the table's integer key"),
        (line(1), "line 3: id is that of line 1 already"),
        (b'{"id": 3, "content": "\\ud800"}\n', "line 3:"),
    ],
)
async def test_a_bad_line_is_named_and_nothing_is_imported(bench: Workbench, bad: bytes, complaint: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        await load(bench, [line(1), line(2), bad, line(4)])
    assert complaint in str(caught.value)
    assert CANARY not in str(caught.value)
    assert await bench.value("SELECT count(*) FROM memories") == 0


async def test_many_bad_lines_are_counted_and_the_first_ones_listed(bench: Workbench) -> None:
    with pytest.raises(InvalidInput, match=r"line 20: .*; and 30 more"):
        await load(bench, [b"nonsense\n"] * 50)


async def test_a_table_with_an_integer_is_sensitive_takes_the_same_file(bench: Workbench) -> None:
    await bench.execute("ALTER TABLE memories DROP CONSTRAINT memory_index_no_private_embedding")
    await bench.execute("DROP TABLE memories CASCADE")
    await bench.execute(
        "CREATE TABLE memories (id bigserial PRIMARY KEY, content text NOT NULL, is_sensitive integer DEFAULT 0, "
        "deleted_at timestamptz)"
    )
    lines = [line(1, is_sensitive=True), line(2)]
    assert (await load(bench, lines)).inserted == 2
    assert (await load(bench, lines)).unchanged == 2
    assert await bench.value("SELECT array_agg(is_sensitive ORDER BY id) FROM memories") == [1, 0]


async def test_a_line_that_a_further_key_forbids_aborts_the_import_and_the_key_is_named(bench: Workbench) -> None:
    await bench.execute("CREATE UNIQUE INDEX one_of_each ON memories (user_id, content)")
    await load(bench, [line(1, content=CANARY, user_id="me")])
    with pytest.raises(DatabaseRejected, match=r"Nothing was imported: .* the key one_of_each of public") as no:
        await load(bench, [line(2), line(3, content=CANARY, user_id="me"), line(4)])
    assert "change or delete the other row" in no.value.remedy
    assert CANARY not in str(no.value) + str(no.value.__context__)
    assert await bench.value("SELECT array_agg(id) FROM memories") == [1]


async def test_a_name_that_is_no_key_of_the_table_is_not_repeated(bench: Workbench) -> None:
    """A trigger can write the text of a row into the name of the constraint."""
    await bench.execute(
        "CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN "
        "RAISE unique_violation USING CONSTRAINT = NEW.content; END$$"
    )
    await bench.execute("CREATE TRIGGER tell BEFORE INSERT ON memories FOR EACH ROW EXECUTE FUNCTION tell()")
    with pytest.raises(DatabaseRejected, match="a line has values that a key of public") as refused:
        await load(bench, [line(1, content=CANARY)])
    assert CANARY not in str(refused.value)


async def test_a_memory_that_another_session_inserts_meanwhile_aborts_the_import(bench: Workbench) -> None:
    async with bench.database.connection() as other:
        inserting = other.transaction()
        await inserting.start()
        await other.execute("INSERT INTO memories (id, content) OVERRIDING SYSTEM VALUE VALUES (2, 'of the API')")
        importing = asyncio.create_task(load(bench, [line(1), line(2)]))
        async with asyncio.timeout(60):
            while True:
                if await bench.value("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"):
                    break
                await asyncio.sleep(0.02)
        await inserting.commit()
    with pytest.raises(DatabaseRejected, match=r"Nothing was imported: .* the key .* of public"):
        await importing
    assert await bench.value("SELECT array_agg(content) FROM memories") == ["of the API"]
    assert (await load(bench, [line(1), line(2)])).updated == 1


async def test_a_line_that_a_trigger_keeps_out_aborts_the_import(bench: Workbench) -> None:
    await bench.execute("CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    await bench.execute(
        "CREATE TRIGGER skip BEFORE INSERT ON memories FOR EACH ROW WHEN (NEW.id > 2) EXECUTE FUNCTION skip()"
    )
    with pytest.raises(DatabaseRejected, match=r"public\.memories did not take 2 of the lines") as refused:
        await load(bench, [line(1), line(2), line(3), line(4)])
    assert "look for triggers" in refused.value.remedy
    assert await bench.value("SELECT count(*) FROM memories") == 0
