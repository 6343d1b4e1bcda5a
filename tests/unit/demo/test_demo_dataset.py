"""The check of a labelled set: every mistake is named by file and line before anything is started."""

import json
from pathlib import Path

import pytest

from devcluster.demo.dataset import DatasetError, evaluation_lines, load

MEMORY = {"id": 1, "content": "the NAS is called bolt", "category": "facts", "tags": "nas", "importance": 0.5}
QUERY = {"query_id": "q1", "text": "name of the storage box?", "stratum": "paraphrase"}
QREL = {"query_id": "q1", "relevant_ids": [1]}


def write(directory: Path, corpus: list[object], queries: list[object], qrels: list[object]) -> Path:
    for name, rows in (("corpus", corpus), ("queries", queries), ("qrels", qrels)):
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        (directory / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return directory


def test_a_sound_set_is_loaded_with_judgements_joined_to_their_questions(tmp_path: Path) -> None:
    dataset = load(write(tmp_path, [MEMORY], [QUERY], [QREL]))
    assert [one.relevant_ids for one in dataset.queries] == [(1,)]
    line = json.loads(evaluation_lines(dataset.queries))
    assert line == {**QUERY, "conv": "all", "relevant_ids": [1]}


def test_questions_can_be_measured_one_by_one(tmp_path: Path) -> None:
    dataset = load(write(tmp_path, [MEMORY], [QUERY], [QREL]))
    assert json.loads(evaluation_lines(dataset.queries, one_by_one=True))["stratum"] == QUERY["query_id"]


def test_a_question_of_a_conversation_is_scoped_to_it_and_one_of_all_is_not(tmp_path: Path) -> None:
    queries = [{**QUERY, "conv": "conv-26"}, {**QUERY, "query_id": "q2", "conv": "all"}]
    qrels = [QREL, {**QREL, "query_id": "q2"}]
    dataset = load(write(tmp_path, [MEMORY], queries, qrels))
    assert [one.query.user for one in dataset.queries] == ["conv-26", None]


def test_fields_the_store_does_not_know_are_not_sent_to_it(tmp_path: Path) -> None:
    dataset = load(write(tmp_path, [{**MEMORY, "dia_id": "D1:1", "title": "x"}], [QUERY], [QREL]))
    assert json.loads(dataset.corpus_lines()) == MEMORY


def test_sensitive_memories_are_counted_in_either_spelling(tmp_path: Path) -> None:
    corpus = [{**MEMORY, "is_sensitive": True}, {**MEMORY, "id": 2, "is_sensitive": 1}, {**MEMORY, "id": 3}]
    assert load(write(tmp_path, corpus, [QUERY], [QREL])).sensitive == 2


@pytest.mark.parametrize(
    ("corpus", "queries", "qrels", "complaint"),
    [
        ([MEMORY, "{not json"], [QUERY], [QREL], "corpus.jsonl:2: not one JSON object"),
        ([{**MEMORY, "content": "  "}], [QUERY], [QREL], "corpus.jsonl:1: content: must not be blank"),
        ([{**MEMORY, "id": "1"}], [QUERY], [QREL], "corpus.jsonl:1: id: input should be a valid integer"),
        ([{**MEMORY, "importance": 2}], [QUERY], [QREL], "corpus.jsonl:1: importance: input should be less than"),
        ([MEMORY, MEMORY], [QUERY], [QREL], "corpus.jsonl:2: 1 was already used on line 1"),
        ([MEMORY], [QUERY, {**QUERY, "query_id": "q2"}], [QREL], "queries.jsonl:2: q2 has no line in qrels.jsonl"),
        ([MEMORY], [QUERY], [QREL, {**QREL, "query_id": "q9"}], "qrels.jsonl:2: q9 has no line in queries.jsonl"),
        ([MEMORY], [QUERY], [{**QREL, "relevant_ids": [7]}], "qrels.jsonl:1: q1 points at memories that corpus.jsonl"),
        ([MEMORY], [QUERY], [{**QREL, "relevant_ids": []}], "qrels.jsonl:1: relevant_ids: tuple should have at least"),
        ([], [QUERY], [QREL], "corpus.jsonl: no line in it"),
    ],
)
def test_each_mistake_is_named_by_file_and_line(
    tmp_path: Path, corpus: list[object], queries: list[object], qrels: list[object], complaint: str
) -> None:
    with pytest.raises(DatasetError) as caught:
        load(write(tmp_path, corpus, queries, qrels))
    assert complaint in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    directory = write(tmp_path, [MEMORY], [QUERY], [QREL])
    (directory / "qrels.jsonl").unlink()
    with pytest.raises(DatasetError, match=r"qrels\.jsonl"):
        load(directory)


def test_an_error_about_a_labelled_set_does_not_quote_memory_text(tmp_path: Path) -> None:
    with pytest.raises(DatasetError) as caught:
        load(write(tmp_path, [{**MEMORY, "importance": "zebra"}], [QUERY], [QREL]))
    assert "bolt" not in str(caught.value)
    assert "zebra" not in str(caught.value)


def test_many_mistakes_are_summarised(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="and 5 more"):
        load(write(tmp_path, ["{"] * 25, [QUERY], [QREL]))
