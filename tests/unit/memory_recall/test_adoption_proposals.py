"""What a table's columns are used for is proposed by name, type and known keys; what is undecided is asked."""

import re
from pathlib import Path

import pytest

from memory_recall.embedding.profiles import PROFILES
from memory_recall.errors import InvalidConfiguration
from memory_recall.schema.adoption.estimates import PROPOSED_FILLFACTOR, estimate_costs, judge_updates
from memory_recall.schema.adoption.existing_columns import (
    embedding_name,
    existing_vector_ways,
    vector_columns_of_others,
)
from memory_recall.schema.adoption.observations import DocumentKey, NumberRange, TableObservation, TextObservation
from memory_recall.schema.adoption.proposal import Given, Proposal, propose
from memory_recall.schema.adoption.settings_output import object_name, yaml_lines
from memory_recall.schema.table import MemoryTable
from tests.support.yaml_text import read_yaml

pytestmark = pytest.mark.finding("database F6")
DEFINITION = Path(__file__).parents[3] / "charts" / "memory-index" / "crds" / "memoryindexes.yaml"
MINILM = PROFILES["all-MiniLM-L6-v2"]


def table(**columns: str) -> MemoryTable:
    return MemoryTable("app", "notes", {"id": "bigint", **columns}, "public", None)


def proposed(
    found: MemoryTable, seen: TableObservation | None = None, given: Given | None = None, *, all_public: bool = True
) -> Proposal:
    return propose(found, seen or TableObservation(primary_key=("id",)), given or {}, all_public=all_public)


def used(proposal: Proposal) -> dict[str, str]:
    return {one.name: ", ".join(map(str, one.sources)) for one in proposal.choices}


@pytest.mark.parametrize(
    ("name", "column", "kind"),
    [
        ("content", "Page_Content", "text"), ("content", "memoryText", "character varying"),
        ("user_id", "userId", "uuid"), ("user_id", "User Id", "integer"), ("user_id", "OWNER", "text"),
        ("user_id", "agent_id", "text"), ("deleted_at", "deletedAt", "timestamp without time zone"),
        ("deleted_at", "is_deleted", "boolean"), ("deleted_at", "archived", "boolean"),
        ("is_sensitive", "isSecret", "boolean"), ("is_sensitive", "private", "smallint"),
        ("created_at", "createdAt", "timestamp with time zone"),
        ("updated_at", "modified_at", "timestamp with time zone"),
        ("tags", "labels", "text"), ("category", "kind", "text"), ("importance", "score", "real"),
        ("search_vector", "anything", "tsvector"),
    ],
)  # fmt: skip
def test_a_column_is_found_by_its_name_whatever_its_case_and_its_separators(name: str, column: str, kind: str) -> None:
    proposal = proposed(table(**{column: kind}), all_public=name != "is_sensitive")
    assert used(proposal)[name] == column
    assert not proposal.questions


def test_a_likelier_name_wins_and_equally_likely_ones_are_asked_about_with_the_options() -> None:
    both = proposed(table(content="text", body="text", deleted="boolean", archived="boolean"))
    assert (used(both)["content"], used(both)["deleted_at"]) == ("content", "deleted")
    (question,) = proposed(table(body="text", Text="text")).questions
    assert "body and Text are equally likely for content." in question.message
    assert "--content body; --content Text; --content body --content Text for all of them" in question.remedy
    (question,) = proposed(table(content="text", owner="text", account_id="uuid")).questions
    assert "--column user_id=owner; --column user_id=account_id; --column user_id= for none" in question.remedy


def test_that_no_row_is_secret_is_never_proposed() -> None:
    proposal = proposed(table(content="text"), all_public=False)
    (question,) = proposal.questions
    assert question.name == "is_sensitive"
    assert "--no-sensitive" in question.remedy
    assert 'ALTER TABLE "app"."notes" ADD COLUMN is_sensitive boolean NOT NULL DEFAULT false;' in question.remedy
    assert not proposal.names().all_public
    assert proposed(table(content="text")).names().all_public


def test_what_was_given_wins_and_takes_its_column_from_other_purposes() -> None:
    proposal = proposed(table(body="text", text="text"), given={"category": "text"})
    assert used(proposal) | {"content": "body", "category": "text"} == used(proposal)
    with pytest.raises(InvalidConfiguration, match="there is no such column"):
        proposed(table(body="text"), given={"contents": "body"})


def test_texts_of_some_length_are_taken_where_no_name_says_which_hold_the_memories() -> None:
    columns = table(utterance="text", code="text", place="text")
    seen = TableObservation(primary_key=("id",), widths={"utterance": 80, "code": 4})
    assert used(proposed(columns, seen))["content"] == "utterance"
    seen = TableObservation(primary_key=("id",), widths={"utterance": 80, "place": 40})
    assert [one.name for one in proposed(columns, seen).questions] == ["content"]


def test_keys_of_documents_are_proposed_where_no_column_is_likelier() -> None:
    keys = (
        DocumentKey("payload", ("data",), 1, ("string",)), DocumentKey("payload", ("more", "text"), 1, ("string",)),
        DocumentKey("payload", ("note",), 0.01, ("string",)), DocumentKey("payload", ("userId",), 0.9, ("number",)),
        DocumentKey("payload", ("tags",), 1, ("array",)), DocumentKey("payload", ("is_deleted",), 1, ("boolean",)),
    )  # fmt: skip
    seen = TableObservation(primary_key=("id",), document_keys=keys)
    found = used(proposed(table(payload="jsonb"), seen))
    assert (found["content"], found["user_id"]) == ("payload->>'data'", "payload->>'userId'")
    assert (found["tags"], found["deleted_at"]) == ("tags", ""), "an array is no text, and false is no time of deletion"
    assert used(proposed(table(payload="jsonb", body="text"), seen))["content"] == "body"


def test_a_column_of_another_type_is_left_out_unless_recalls_would_find_what_they_must_not() -> None:
    columns = table(content="text", tags="text[]", importance="integer", deleted_at="bigint", user_id="jsonb")
    seen = TableObservation(primary_key=("id",), ranges={"importance": NumberRange(1, 5)})
    proposal = proposed(columns, seen)
    found, reasons = used(proposal), {one.name: one.reason for one in proposal.choices}
    assert (found["tags"], found["importance"]) == ("", "")
    assert reasons["importance"] == "importance has numbers from 1 to 5, not from 0 to 1"
    assert reasons["tags"] == "tags is text[], not text or character varying"
    assert (found["deleted_at"], found["user_id"]) == ("deleted_at", "user_id"), "migrate says what is wrong with them"


@pytest.mark.parametrize(
    ("primary_key", "unique", "expected"),
    [
        (("slug",), ("slug",), "slug"), (("user_id", "id"), (), "id"), ((), ("slug",), "id"),
        (("user_id", "slug"), (), "id"),
    ],
)  # fmt: skip
def test_the_key_is_the_primary_key_of_one_column_else_the_one_of_the_name(
    primary_key: tuple[str, ...], unique: tuple[str, ...], expected: str
) -> None:
    seen = TableObservation(primary_key=primary_key, unique=unique)
    assert used(proposed(table(slug="text", content="text"), seen))["id"] == expected


def test_without_a_name_the_only_unique_column_is_the_key() -> None:
    found = MemoryTable("app", "notes", {"address": "text", "content": "text"}, "public", None)
    assert used(proposed(found, TableObservation(unique=("address",))))["id"] == "address"


def test_costs_grow_with_the_rows_that_get_a_vector() -> None:
    """At 1,024 dimensions an index of 100,000 vectors was measured at 273 MB."""
    seen, texts = TableObservation(rows=100_000), TextObservation(rows=10, texts=10, mean_bytes=200)
    costs = estimate_costs(seen, texts, 1024, 24)
    assert (costs.rows, costs.vector_bytes, costs.word_bytes) == (100_000, 205_600_000, 20_000_000)
    assert costs.index_bytes == pytest.approx(273_080_320, rel=0.01)
    half = estimate_costs(seen, TextObservation(rows=10, texts=9, sensitive=3, deleted=1), 1024, 24)
    assert half.rows == 50_000


@pytest.mark.parametrize(
    ("updates", "fillfactor", "proposed"), [(0, 100, None), (99, 100, None), (100, 100, 85), (5000, 85, None)]
)
def test_a_fillfactor_is_proposed_where_rows_are_updated_often(
    updates: int, fillfactor: int, proposed: int | None
) -> None:
    seen = TableObservation(rows=1000, updates=updates, fillfactor=fillfactor)
    assert judge_updates(seen).proposed == proposed
    assert PROPOSED_FILLFACTOR == 85


def test_vectors_of_the_same_name_are_cast_only_where_the_model_is_named_and_others_are_left() -> None:
    def ways(kind: str, dimensions: int) -> str:
        found = MemoryTable("app", "notes", {"id": "bigint", "embedding": kind, "vec": "vector"}, "public", dimensions)
        assert vector_columns_of_others(found) == ["vec"]
        return " ".join(existing_vector_ways(found, MINILM))

    assert existing_vector_ways(table(), MINILM) == []
    assert 'TYPE "public".halfvec(384) USING embedding::"public".halfvec(384)' in ways("vector", 384)
    assert "--existing-vectors keep" in ways("vector", 384)
    assert "cannot hold vectors of all-MiniLM-L6-v2" in ways("vector", 1536)
    assert "keep" not in ways("vector", 1536)
    assert "TYPE" not in ways("halfvec", 384)
    assert all("--column embedding=memory_embedding" in ways(kind, 384) for kind in ("vector", "halfvec", "text"))


@pytest.mark.parametrize(
    ("kind", "dimensions", "name"),
    [
        ("halfvec", 384, "embedding"), ("vector", 384, "memory_embedding"), ("vector", 1536, "memory_embedding"),
        ("halfvec", 1536, "memory_embedding"), ("text", None, "memory_embedding"), (None, None, "embedding"),
    ],
)  # fmt: skip
def test_a_column_of_the_usual_name_that_cannot_hold_our_vectors_is_left_to_its_users(
    kind: str | None, dimensions: int | None, name: str
) -> None:
    catalog = {"id": "bigint", "content": "text"} | ({"embedding": kind} if kind else {})
    found = MemoryTable("app", "notes", catalog, "public", dimensions)
    assert embedding_name(found, MINILM) == name
    seen = TableObservation(primary_key=("id",))
    assert propose(found, seen, {}, all_public=True, embedding=name).names().embedding == name
    given = propose(found, seen, {"embedding": "memory_embedding"}, all_public=True, embedding=name)
    assert given.names().embedding == "memory_embedding"


@pytest.mark.parametrize(
    ("table_name", "expected"),
    [
        ("Notes", "notes"), ("user_notes", "user-notes"), ("2024_notes", "m-2024-notes"), ("_2024", "m-2024"),
        ("été", "t"), ("记忆", "memories"), ("_", "memories"), ("a" * 63, "a" * 40), ("1" * 63, "m-" + "1" * 38),
        ("a" * 39 + "_b", "a" * 39),
    ],
)  # fmt: skip
def test_the_definition_takes_the_name_that_is_proposed_for_the_object(table_name: str, expected: str) -> None:
    (version,) = read_yaml(DEFINITION.read_text())["spec"]["versions"]
    (rule,) = [one["rule"] for one in version["schema"]["openAPIV3Schema"]["x-kubernetes-validations"]]
    longest, pattern = re.findall(r"size\(\) <= (\d+) && self\.metadata\.name\.matches\('(.+)'\)", rule)[0]
    name = object_name(table_name)
    assert name == expected
    assert len(name) <= int(longest)
    assert re.search(pattern, name)


def test_words_that_yaml_reads_otherwise_are_quoted() -> None:
    assert list(yaml_lines({"a": {"b": "no"}, "c": "x y", "d": "None", "e": ["q"], "f": 3})) == [
        "a:", '  b: "no"', 'c: "x y"', "d: None", 'e: ["q"]', "f: 3",
    ]  # fmt: skip
