"""All faults of a table's columns are named at once, each with the statement that mends it in this very table."""

from dataclasses import replace
from pathlib import Path

import pytest

from memory_recall.schema.columns.names import OUR_NAMES, OWN_SEARCH_COLUMN
from memory_recall.schema.columns.used import USED_COLUMNS, Need
from memory_recall.schema.requirements.used_columns import column_faults, shape_faults
from memory_recall.schema.table import MemoryTable

COLUMNS = {used.name: used.types[0] for used in USED_COLUMNS}
TABLE = MemoryTable("app", "notes", COLUMNS, "public", None)
pytestmark = [pytest.mark.finding("database F10"), pytest.mark.finding("database F15")]


def faulty(**types: str) -> str:
    faults = column_faults(replace(TABLE, catalog=COLUMNS | types), Need.ALWAYS)
    return " ".join(f"{fault.message} {fault.remedy}" for fault in faults)


@pytest.mark.parametrize("used", USED_COLUMNS, ids=lambda used: used.name)
def test_each_type_of_the_list_is_taken_and_another_one_is_named(used: object) -> None:
    name, types = used.name, used.types  # type: ignore[attr-defined]
    assert [faulty(**{name: kind}) for kind in types] == [""] * len(types)
    said = faulty(**{name: "point"})
    assert f'Column {name} of "app"."notes" is point, not' in said
    assert all(kind in said for kind in types)
    assert f'ALTER TABLE "app"."notes" ALTER COLUMN {name} TYPE {types[0]} USING ' in said


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("deleted_at", "text"), ("deleted_at", "bigint"), ("importance", "text"), ("search_vector", "text"),
        ("content", "bytea"), ("content", "jsonb"), ("created_at", "double precision"), ("id", "bytea"),
        ("user_id", "citext"), ("user_id", "character"), ("tags", "text[]"), ("category", "integer"),
    ],
)  # fmt: skip
def test_what_was_taken_and_failed_later_is_refused(name: str, kind: str) -> None:
    assert f"Column {name}" in faulty(**{name: kind})


@pytest.mark.finding("database F14")
def test_all_faults_are_named_at_once() -> None:
    types = {"importance": "text", "deleted_at": "bigint", "embedding": "vector"}
    columns = {name: kind for name, kind in (COLUMNS | types).items() if name not in {"content", "search_vector"}}
    faults = column_faults(replace(TABLE, catalog=columns, embedding_dimensions=384), Need.ALWAYS)
    assert [fault.remedy.removeprefix('ALTER TABLE "app"."notes" ') for fault in faults] == [
        "ADD COLUMN content text;",
        (
            "ALTER COLUMN deleted_at TYPE timestamp with time zone "
            "USING CASE WHEN deleted_at > 0 THEN to_timestamp(deleted_at) END;"
        ),
        "ALTER COLUMN importance TYPE real USING importance::real;",
        (
            "Give our vectors another column, so that this one stays as it is: MEMORY_COLUMNS "
            """'{"embedding": "memory_embedding"}' (in a cluster, spec.database.columns). Or, where the model made """
            """what is in it: ALTER TABLE "app"."notes" ALTER COLUMN embedding TYPE "public".halfvec(384) """
            """USING embedding::"public".halfvec(384);"""
        ),
    ]


def test_a_table_without_a_search_column_may_be_indexed_and_gets_one_before_it_is_recalled_from() -> None:
    columns = {name: kind for name, kind in COLUMNS.items() if name != "search_vector"}
    table = replace(TABLE, catalog=columns, names=OUR_NAMES.for_table(columns))
    assert column_faults(table, Need.ALWAYS) == []
    (fault,) = column_faults(table, Need.ALWAYS, Need.RECALL)
    assert fault.message == '"app"."notes" has no search column yet.'
    assert fault.remedy == "Run memory migrate, which adds one."
    migrated = replace(table, catalog={**columns, OWN_SEARCH_COLUMN: "tsvector"})
    assert column_faults(migrated, Need.ALWAYS, Need.RECALL) == []


@pytest.mark.parametrize("name", ["id", "content", "is_sensitive", "deleted_at"])
@pytest.mark.parametrize("kind", ["stored", "virtual"])
@pytest.mark.finding("database F7")
@pytest.mark.finding("security L7")
def test_what_the_rules_read_is_no_generated_column(name: str, kind: str) -> None:
    generated: dict[str, object] = {name: kind}
    faults = column_faults(replace(TABLE, generated=generated), Need.ALWAYS)  # type: ignore[arg-type]
    (fault,) = faults
    assert f'Column {name} of "app"."notes" is a generated column ({kind})' in fault.message
    assert ("DROP EXPRESSION" if kind == "stored" else "DROP COLUMN") in fault.remedy


@pytest.mark.parametrize(("dimensions", "cast"), [(384, True), (-1, False)])
@pytest.mark.finding("database F14")
def test_a_column_of_vectors_without_a_length_is_left_and_not_cast(dimensions: int, cast: bool) -> None:
    """After a cast without a length, the length would be refused."""
    table = replace(TABLE, catalog={**COLUMNS, "embedding": "vector"}, embedding_dimensions=dimensions)
    (fault,) = column_faults(table, Need.ALWAYS)
    assert fault.remedy.startswith("Give our vectors another column")
    assert ('TYPE "public".halfvec(384) USING' in fault.remedy) is cast


def test_a_date_of_deletion_that_is_never_null_is_refused() -> None:
    (fault,) = column_faults(replace(TABLE, not_null=["id", "deleted_at"]), Need.ALWAYS)
    assert "every memory counts as deleted" in fault.message


def test_nothing_is_wrong_with_a_table_that_does_not_exist() -> None:
    table = replace(TABLE, catalog={})
    assert column_faults(table, Need.ALWAYS, Need.RECALL) == shape_faults(table) == []


def test_a_view_is_no_table() -> None:
    (fault,) = shape_faults(replace(TABLE, kind="v"))
    assert '"app"."notes" is not a table' in fault.message


def test_the_field_of_the_resource_names_the_columns_that_are_needed() -> None:
    definition = (Path(__file__).parents[3] / "charts/memory-index/crds/memoryindexes.yaml").read_text()
    described = " ".join(definition.partition("The table of memories, TABLE")[2].partition("Immutable.")[0].split())
    *needed, last = [used.name for used in USED_COLUMNS if used.need is Need.ALWAYS]
    assert f"the columns {', '.join(needed)} and {last}, or the names of what it has" in described
