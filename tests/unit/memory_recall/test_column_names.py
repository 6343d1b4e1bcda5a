"""Names of columns: how a person writes them, and a record of them that anybody may have written."""

import json

import pytest

from memory_recall.errors import DatabaseRejected, InvalidConfiguration
from memory_recall.schema.columns.names import OUR_NAMES, ColumnNames, ColumnSource

NAMES = ColumnNames.parse(
    {"id": "Key", "content": ["title", "payload->'it''s'->>'body'"], "deleted_at": "", "search_vector": ""},
    all_public=True,
    text_search_configuration="german",
)
OTHER_VECTORS = ColumnNames.parse({"embedding": "memory_embedding"})


def test_names_are_read_as_they_were_recorded() -> None:
    assert ColumnNames.from_json(NAMES.to_json()) == NAMES
    assert ColumnNames.from_json(OTHER_VECTORS.to_json()) == OTHER_VECTORS
    assert ColumnNames.from_json("{}") == OUR_NAMES


@pytest.mark.parametrize(
    "record",
    [
        "",
        "[" * 100_000,
        "[]",
        "null",
        '{"columns": []}',
        '{"columns": {"id": []}}',
        '{"columns": {"id": ["a", "b"]}}',
        '{"columns": {"id": "a"}}',
        '{"columns": {"content": [7]}}',
        '{"columns": {"content": []}}',
        '{"columns": {"nothing": ["a"]}}',
        '{"columns": {"id": ["payload->>\'id\'"]}}',
        json.dumps({"columns": {"content": ["a" + " " * 100_000]}}),
        json.dumps({"columns": {"content": ["a" + " " * 20_000]}}),
        '{"text_search_configuration": ["german"]}',
        json.dumps({"text_search_configuration": "g" * 128}),
        '{"embedding": "vectors"}',
        '{"embedding": "memory_x\\n"}',
        '{"embedding": "memory_search_vector"}',
    ],
    ids=range(19),
)
def test_a_record_that_no_migration_has_written_is_refused(record: str) -> None:
    """A tenant's database reaches the operator, which must neither fail nor compute for long."""
    with pytest.raises(DatabaseRejected, match="recorded names of the table's columns are malformed"):
        ColumnNames.from_json(record)


@pytest.mark.parametrize("written", ["body", "User Id", "payload->>'data'", "a.b->'meta'->>'it''s'"])
def test_a_source_is_written_as_it_was_read(written: str) -> None:
    assert str(ColumnSource.parse(written)) == written


def test_all_names_that_cannot_be_used_are_named_at_once() -> None:
    with pytest.raises(InvalidConfiguration) as refused:
        ColumnNames.parse({"nothing": "a", "tags": "t" * 501, "content": "payload->'x'", "embedding": "v"})
    said = ("nothing:", "tags: a name or a path", "content: a path has", "embedding: our column of vectors is called")
    assert all(one in refused.value.message for one in said)
