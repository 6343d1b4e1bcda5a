"""Memories of another program's table are exported with its ids, and imported where a line is a row."""

import json
from typing import Any

import pytest

from memory_recall.errors import InvalidInput, SchemaUnsupported
from memory_recall.postgres.connection import opened
from memory_recall.transfer.export_jsonl import ExportCounts, exporting
from memory_recall.transfer.import_jsonl import ImportResult, import_memories
from tests.integration.memory_recall.adopted.conftest import BOILER, KETTLE, SECRET, STOVE, StoreBench, only

ID = "0190f3e0-0000-7000-8000-000000000001"


async def exported(adopted: StoreBench) -> tuple[ExportCounts, list[dict[str, Any]]]:
    async with opened(adopted.source, "test") as connection, exporting(connection, await adopted.table()) as export:
        return export.counts, [memory async for memory in export.memories()]


async def imported(adopted: StoreBench, *lines: dict[str, Any]) -> ImportResult:
    async with opened(adopted.source, "test") as connection:
        return await import_memories(connection, await adopted.table(), [json.dumps(one).encode() for one in lines])


async def test_what_may_leave_is_exported_under_our_names_with_the_tables_own_ids(adopted: StoreBench) -> None:
    kept, gone = await adopted.add(BOILER), await adopted.add(KETTLE)
    secrets = 0
    if adopted.store.hide is not None:
        await adopted.add(SECRET, secret=True)
        secrets = 1
    if adopted.store.delete is not None:
        await adopted.execute(adopted.store.delete, gone)
    counts, lines = await exported(adopted)
    deleted = int(adopted.store.delete is not None)
    assert (counts.shareable, counts.sensitive, counts.deleted) == (2 - deleted, secrets, deleted)
    line = next(one for one in lines if one["id"] == kept)
    assert line["content"] == adopted.text(BOILER)
    table = await adopted.table()
    assert set(line) <= {"id", "content", "user_id", "created_at", "category", "tags", "importance"}
    assert line.get("user_id") == ("7" if "user_id" in table.columns else None)
    assert ("created_at" in line) == ("created_at" in table.columns)


@only("other names and a uuid", "nothing but a key and a text")
async def test_an_export_is_imported_again_and_a_changed_line_changes_its_row(adopted: StoreBench) -> None:
    first, second = await adopted.add(BOILER), await adopted.add(KETTLE)
    _, lines = await exported(adopted)
    assert (await imported(adopted, *lines)).unchanged == 2
    await adopted.work.backfill()
    by_id = {line["id"]: line for line in lines}
    result = await imported(adopted, by_id[first] | {"content": STOVE}, by_id[second])
    assert (result.updated, result.unchanged) == (1, 1)
    assert await adopted.embedded() == {second}
    await adopted.execute(f"DELETE FROM {(await adopted.table()).qualified}")
    assert (await imported(adopted, *lines)).inserted == 2
    again = {line["id"]: line for line in (await exported(adopted))[1]}
    assert again == {key: line | again[key] for key, line in by_id.items()}
    assert len(again) == 2


@only("other names and a uuid")
async def test_a_line_of_a_uuid_table_names_a_uuid_and_may_be_sensitive(adopted: StoreBench) -> None:
    result = await imported(
        adopted,
        {"id": ID.upper(), "content": SECRET, "is_sensitive": True, "user_id": 7, "importance": 0.5},
        {"id": ID[:-1] + "2", "content": KETTLE, "created_at": "2026-01-01T00:00:00Z"},
    )
    assert (result.inserted, result.sensitive) == (2, 1)
    _, (line,) = await exported(adopted)
    assert (line["id"], line["created_at"]) == (ID[:-1] + "2", "2026-01-01T00:00:00+00:00")
    for given, problem in ((17, "id: input should be a valid string"), ("17", "id is not of the type uuid")):
        with pytest.raises(InvalidInput, match=f"line 1: {problem}"):
            await imported(adopted, {"id": given, "content": KETTLE})
    with pytest.raises(InvalidInput, match="line 2: id is that of line 1 already"):
        await imported(adopted, {"id": ID, "content": KETTLE}, {"id": ID.upper(), "content": KETTLE})


@only("nothing but a key and a text")
async def test_a_sensitive_line_is_refused_where_no_row_can_be_sensitive(adopted: StoreBench) -> None:
    with pytest.raises(InvalidInput, match="line 1: is_sensitive is true, and the table has no column"):
        await imported(adopted, {"id": 1, "content": SECRET, "is_sensitive": True})
    with pytest.raises(InvalidInput, match="line 1: id is larger than the table's smallint key"):
        await imported(adopted, {"id": 2**15, "content": KETTLE})
    assert await adopted.value("SELECT count(*) FROM pages") == 0


@only("nothing but a key and a text")
async def test_a_line_that_names_a_user_is_refused_where_the_table_has_no_users(adopted: StoreBench) -> None:
    """One user's memories would become those of everybody who reads the table."""
    for named in ({"user_id": "ana"}, {"conv": "ana"}):
        with pytest.raises(InvalidInput, match="line 2: it names a user, and the table has no column"):
            await imported(adopted, {"id": 1, "content": KETTLE}, {"id": 2, "content": STOVE, **named})
    assert await adopted.value("SELECT count(*) FROM pages") == 0


@only("nothing but a key and a text")
async def test_an_import_names_the_fields_that_the_table_has_no_column_for(adopted: StoreBench) -> None:
    bare, full = {"id": 1, "content": KETTLE, "is_sensitive": False}, {"id": 2, "content": STOVE, "tags": ["a"]}
    assert (await imported(adopted, bare)).not_stored == ()
    assert (await imported(adopted, full | {"category": "home"}, bare)).not_stored == ("category", "tags")


@only("documents", "a text key and two texts")
async def test_a_table_whose_rows_another_program_composes_is_not_imported_into(adopted: StoreBench) -> None:
    with pytest.raises(SchemaUnsupported) as refused:
        await imported(adopted, {"id": ID, "content": KETTLE})
    composed = "content from payload->>'data'" if adopted.store.table == "mem0" else "content from title, body"
    assert composed in str(refused.value)
    assert "with the program that the table belongs to" in str(refused.value.remedy)
