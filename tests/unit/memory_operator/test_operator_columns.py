"""The names of columns in a MemoryIndex reach the migration, and names that cannot be used block the index."""

import json
from dataclasses import replace
from typing import Any

import pytest

from memory_operator.reconcile.indexing.backfill import needs_backfill_job
from memory_operator.resources import workers
from memory_operator.resources.columns import column_names
from memory_recall.schema.columns.names import OUR_NAMES, resource_name
from memory_recall.schema.columns.used import USED_COLUMNS
from memory_recall.status import RowCounts
from tests.unit.memory_operator.conftest import EMPTY, FULL, World, condition

NAMES = {"id": "uuid", "content": ["title", "payload->>'body'"], "deletedAt": "", "userId": "User Id"}
pytestmark = pytest.mark.finding("database F6")


def environment(job: dict[str, Any]) -> dict[str, str]:
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return {item["name"]: item.get("value", "") for item in container["env"]}


def test_the_migration_alone_gets_the_names_and_the_word_that_no_row_is_secret(world: World) -> None:
    index = world.index(database={"columns": NAMES, "sensitivity": "None"})
    given = environment(workers.migrate_job(index, world.images, 0))
    assert json.loads(given["MEMORY_COLUMNS"]) == {
        "id": "uuid", "content": ["title", "payload->>'body'"], "deleted_at": "", "user_id": "User Id",
    }  # fmt: skip
    assert given["MEMORY_SENSITIVITY"] == "none"
    others = (workers.backfill_job, workers.index_job, workers.uninstall_job, workers.graph_job)
    assert all("MEMORY_COLUMNS" not in environment(make(index, world.images, 0)) for make in others)
    assert "MEMORY_COLUMNS" not in environment(workers.migrate_job(world.index(), world.images, 0))


def test_other_names_are_other_work_for_the_migration(world: World) -> None:
    before = workers.config_fingerprint(world.index(), world.images, "migrate")
    for database in ({"columns": NAMES}, {"sensitivity": "None"}):
        after = workers.config_fingerprint(world.index(database=database), world.images, "migrate")
        assert workers.work_of(after) != workers.work_of(before)


def test_every_used_column_can_be_named_in_the_resource(world: World) -> None:
    for used in USED_COLUMNS:
        name = resource_name(used.name)
        given = ["other"] if name == "content" else "other"
        names = column_names(world.index(database={"columns": {name: given}}))
        assert names.written(used.name) == "other", name
    assert column_names(world.index()) == OUR_NAMES


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"content": ["payload->'body'"]}, "content: a path has -> before each key but the last"),
        ({"id": "payload->>'id'"}, "id: it must be a column of its own"),
        ({"sensitive": ""}, "is_sensitive: that no row is sensitive has to be said"),
        ({"tags": "t" * 64}, "tags: a name has 1 to 63 bytes"),
    ],
)
def test_a_name_that_cannot_be_used_blocks_the_index_and_is_named(
    columns: dict[str, Any], said: str, world: World
) -> None:
    plan = world.decide(world.index(database={"columns": columns}), database=replace(EMPTY, extension_version="0.8.7"))
    ready = next(one for one in plan.status["conditions"] if one["type"] == "Ready")
    assert ready["reason"] == "InvalidSpec"
    assert f"spec.database.columns: {said}" in ready["message"]
    assert not [action for action in plan.actions if getattr(action, "manifest", {}).get("kind") == "Job"]


def test_words_that_are_not_made_yet_are_work_for_the_first_backfill_and_keep_the_index_from_being_ready(
    world: World,
) -> None:
    rows = RowCounts(total=5, embedded=5, without_words=5)
    assert needs_backfill_job(rows, index_valid=False, last_run=None)
    assert not needs_backfill_job(replace(rows, without_words=0), index_valid=False, last_run=None)
    index, observed, settled = world.settled()
    facts = {**vars(observed), "database": replace(FULL, rows=replace(FULL.rows, without_words=5))}
    plan = world.decide(index, **facts)
    conditions = {one["type"]: one for one in plan.status["conditions"]}
    assert conditions["Backfilled"]["status"] == conditions["Ready"]["status"] == "False"
    assert "the words of 5 texts" in conditions["Backfilled"]["message"]
    assert plan.status["rows"]["withoutWords"] == 5
    assert "withoutWords" not in settled.status["rows"]


@pytest.mark.finding("database F5")
@pytest.mark.parametrize("revision", [FULL.schema_revision, "9999"])
def test_the_schema_is_ready_and_says_where_words_are_told_apart_by_case(world: World, revision: str) -> None:
    kept, folded = (
        condition(world.decide(database=replace(FULL, schema_revision=revision, words_keep_case=keep)), "SchemaReady")
        for keep in (True, False)
    )
    assert (kept["status"], kept["reason"]) == (folded["status"], folded["reason"])
    assert kept["status"] == "True"
    assert "no small letters outside of ASCII" in kept["message"]
    assert "spec.database.columns" in kept["message"]
    assert "small letters" not in folded["message"]
