"""Reading a labelled set: a set without mistakes is read, and a mistake is named by file and line."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memory_bench.harness.dataset import DatasetError, load_dataset

CORPUS: list[dict[str, Any]] = [
    {"id": 1, "content": "zigbee dongle", "conv": "a"},
    {"id": 2, "content": "zfs scrub", "conv": "b", "importance": 0.9, "tags": "x,y"},
    {"id": 3, "content": "a password", "is_sensitive": 1},
]
QUERIES: list[dict[str, Any]] = [
    {"query_id": "q1", "text": "dongle", "stratum": "exact", "conv": "a", "lex_bin": "mixed"},
    {"query_id": "q2", "text": "scrub", "conv": "all"},
]
QRELS: list[dict[str, Any]] = [{"query_id": "q1", "relevant_ids": [1]}, {"query_id": "q2", "relevant_ids": [1, 2]}]


def write(directory: Path, **files: list[Any]) -> Path:
    whole: dict[str, list[Any]] = {"corpus": CORPUS, "queries": QUERIES, "qrels": QRELS, **files}
    for name, records in whole.items():
        lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
        (directory / f"{name}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return directory


def test_a_set_without_mistakes_is_read(tmp_path: Path) -> None:
    """Scopes come from `conv`, and sensitive memories are left out."""
    dataset = load_dataset(write(tmp_path))
    assert [memory.id for memory in dataset.memories] == [1, 2]
    assert dataset.sensitive_left_out == 1
    assert (dataset.queries[0].scope, dataset.queries[1].scope) == ("a", None)
    assert dataset.queries[1].relevant == frozenset({1, 2})
    assert dataset.strata == ["all", "exact"]
    assert [query.overlap for query in dataset.queries] == ["mixed", ""]


def test_the_time_of_creation_is_read_where_the_corpus_says_it(tmp_path: Path) -> None:
    """A time without a zone is UTC; a memory without a time has none."""
    times = ["2024-10-02T21:05:00Z", "2024-10-02T23:05:00+02:00", "2024-10-02 21:05:00", None]
    rows = [{"id": number, "content": "x", "created_at": moment} for number, moment in enumerate(times, start=1)]
    read = load_dataset(write(tmp_path, corpus=rows, queries=QUERIES[1:], qrels=QRELS[1:])).memories
    assert [one.created_at for one in read] == [datetime(2024, 10, 2, 21, 5, tzinfo=UTC)] * 3 + [None]


def test_judgements_may_be_grades(tmp_path: Path) -> None:
    """A grade of 2 or 3 makes a memory relevant, and lines with grades stand beside lines with ids."""
    graded = {"query_id": "q2", "grades": {"1": 1, "2": 2}}
    binary, other = load_dataset(write(tmp_path, qrels=[QRELS[0], graded])).queries
    assert (binary.relevant, binary.grades) == (frozenset({1}), {})
    assert (other.relevant, other.grades) == (frozenset({2}), {1: 1, 2: 2})


def test_the_digest_changes_with_any_file(tmp_path: Path) -> None:
    """The digest in a manifest distinguishes two versions of a set."""
    before = load_dataset(write(tmp_path)).digest
    changed = [{"query_id": "q1", "relevant_ids": [1]}, {"query_id": "q2", "relevant_ids": [2]}]
    assert load_dataset(write(tmp_path, qrels=changed)).digest != before


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"corpus": [CORPUS[0], "{"]}, "corpus.jsonl, line 2: not JSON"),
        ({"corpus": ["[]"]}, "corpus.jsonl, line 1: not an object"),
        ({"corpus": [{"id": "1", "content": "x"}]}, "corpus.jsonl, line 1: `id` must be an integer"),
        ({"corpus": [CORPUS[0], CORPUS[0]]}, "corpus.jsonl, line 2: id 1 was used before"),
        ({"corpus": [{"id": 1, "content": " "}]}, "corpus.jsonl, line 1: `content` must be a text that is not empty"),
        ({"corpus": [{"id": 1, "content": "x", "importance": 2}]}, "line 1: `importance` must be a number from 0 to 1"),
        ({"corpus": [{"id": 1, "content": "x", "tags": ["a"]}]}, "corpus.jsonl, line 1: `tags` must be a text"),
        ({"corpus": [{"id": 1, "content": "x", "created_at": "May"}]}, "line 1: `created_at` must be an ISO 8601 time"),
        ({"corpus": [{"id": 1, "content": "x", "created_at": 5}]}, "line 1: `created_at` must be an ISO 8601 time"),
        ({"corpus": []}, "corpus.jsonl holds no memory"),
        ({"queries": []}, "queries.jsonl: judged query 'q1' is missing"),
        ({"queries": [QUERIES[0], QUERIES[0]]}, "queries.jsonl, line 2: query 'q1' was used before"),
        ({"queries": [{"query_id": "q9", "text": "x"}]}, "queries.jsonl, line 1: query 'q9' has no judgement"),
        ({"queries": [{**QUERIES[0], "conv": "b"}, QUERIES[1]]}, "line 1: memory 1 lies outside the query's own scope"),
        ({"qrels": [{"query_id": "q1", "relevant_ids": []}]}, "line 1: `relevant_ids`, or a grade of 2"),
        ({"qrels": [{"query_id": "q1", "relevant_ids": "1"}]}, "qrels.jsonl, line 1: `relevant_ids` must be a list"),
        ({"qrels": [{"query_id": "q1", "grades": {"1": 4}}]}, "qrels.jsonl, line 1: `grades` must map ids to grades"),
        (
            {"qrels": [{"query_id": "q1", "grades": {"x": 3}}]},
            "qrels.jsonl, line 1: there is no memory x in the corpus",
        ),
        ({"qrels": [{"query_id": "q1", "grades": {"1": 3, "3": 0}}]}, "qrels.jsonl, line 1: memory 3 is sensitive"),
        ({"qrels": [{"query_id": "q1", "grades": {"1": 1}}]}, "line 1: `relevant_ids`, or a grade of 2"),
        (
            {"qrels": [{"query_id": "q1", "relevant_ids": [1, 2], "grades": {"1": 3, "2": 1}}]},
            "qrels.jsonl, line 1: `relevant_ids` must list exactly the memories that `grades` gives 2 or more",
        ),
        ({"qrels": [{"query_id": "q1", "relevant_ids": [7]}]}, "qrels.jsonl, line 1: there is no memory 7"),
        ({"qrels": [{"query_id": "q1", "relevant_ids": [3]}]}, "qrels.jsonl, line 1: memory 3 is sensitive"),
        ({"qrels": [QRELS[0], QRELS[0]]}, "qrels.jsonl, line 2: query 'q1' was judged before"),
    ],
)
def test_a_mistake_is_named_by_file_and_line(tmp_path: Path, files: dict[str, Any], message: str) -> None:
    """The message names the first mistake, without any text of the corpus."""
    with pytest.raises(DatasetError) as caught:
        load_dataset(write(tmp_path, **files))
    assert message in str(caught.value)
    assert "dongle" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A set is a directory of three files."""
    with pytest.raises(DatasetError, match=r"corpus\.jsonl cannot be read"):
        load_dataset(tmp_path)
