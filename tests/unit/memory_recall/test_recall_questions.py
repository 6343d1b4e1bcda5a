"""Labelled questions: what is read, what is refused by line number, and how scores are summed up."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memory_recall.embedding.wire import EmbeddedBatch
from memory_recall.errors import EmbedderBusy, InvalidInput
from memory_recall.evaluation import measures
from memory_recall.evaluation.evaluate import UNNAMED, Outcome, embed_questions, evaluate, parse_questions, summarise
from memory_recall.evaluation.questions import read_questions
from memory_recall.search.sql.visibility import EVERYONE
from tests.unit.memory_recall.fake_recall import FakeRecall, memory

GOOD = '{"query_id": "a", "text": "what", "stratum": "exact", "conv": "c1", "relevant_ids": [3, 4]}'


def test_a_question_is_read_with_its_scope() -> None:
    """The field `conv` names the user; "all" means no user."""
    first, second, third = parse_questions(
        [
            GOOD,
            "",
            '{"query_id": "b", "text": "x", "conv": "all", "relevant_ids": [1]}',
            '{"text": "y", "relevant_ids": [1]}',
        ]
    )
    assert (first.user_id, first.stratum, first.relevant) == ("c1", "exact", frozenset({3, 4}))
    assert (second.user_id, third.user_id, third.stratum) == (EVERYONE, EVERYONE, UNNAMED)


def test_judgements_of_a_question_in_two_lines_are_refused_with_the_second(tmp_path: Path) -> None:
    """As files of TREC have them; the gate of a swap would otherwise compare models by the last of them alone."""
    queries, qrels = tmp_path / "queries.jsonl", tmp_path / "qrels.jsonl"
    queries.write_text('{"query_id": "q1", "text": "x"}\n')
    qrels.write_text('{"query_id": "q1", "relevant_ids": [17]}\n{"query_id": "q1", "relevant_ids": [90]}\n')
    with pytest.raises(InvalidInput, match=r"qrels.jsonl, line 2 is about a question"):
        read_questions(queries, qrels)


def test_a_question_may_have_grades() -> None:
    """A memory of grade 2 or 3 is relevant; `relevant_ids` may say the same."""
    lines = ['{"text": "x", "grades": {"7": 3, "8": 2, "9": 1}}']
    lines += ['{"text": "x", "relevant_ids": [8, 7], "grades": {"7": 3, "8": 2, "9": 1}}']
    for question in parse_questions(lines):
        assert question.relevant == frozenset({7, 8})
        assert question.grades == {7: 3, 8: 2, 9: 1}


def test_ids_may_be_texts_and_whole_numbers_are_numbers_however_they_are_written() -> None:
    """Keys of JSON are texts, so ids and grades must mean the same memories; `007` is no spelling of a number."""
    (question,) = parse_questions(
        ['{"text": "x", "relevant_ids": ["a-1", "7", "007"], "grades": {"a-1": 3, "7": 2, "007": 2, "-9": 0}}']
    )
    assert question.relevant == frozenset({"a-1", 7, "007"})
    assert question.grades == {"a-1": 3, 7: 2, "007": 2, -9: 0}


@pytest.mark.parametrize("ids", [("17", "b"), (17, 3)])
async def test_a_question_finds_its_answer_whether_ids_are_texts_or_numbers(ids: tuple[Any, Any]) -> None:
    """The same file with the id 17 serves a table of integers and one of texts."""
    recall: Any = FakeRecall([memory(number, "text") for number in ids])
    questions = parse_questions(['{"text": "x", "grades": {"17": 3}}'])
    (outcome,) = await evaluate(recall, questions, ["lexical"], {})
    assert outcome.scores.mrr == 1


def test_grades_may_stand_in_a_file_of_their_own(tmp_path: Path) -> None:
    """The quality gate of a swap reads grades from a qrels.jsonl, and names a line that is no judgement."""
    queries, qrels = tmp_path / "queries.jsonl", tmp_path / "qrels.jsonl"
    queries.write_text('{"query_id": "a", "text": "x"}\n{"query_id": "b", "text": "y"}\n')
    qrels.write_text('{"query_id": "a", "grades": {"7": 3, "9": 1}}\n{"query_id": "b", "relevant_ids": [4]}\n')
    first, second = read_questions(queries, qrels)
    assert (first.relevant, first.grades, second.relevant) == (frozenset({7}), {7: 3, 9: 1}, frozenset({4}))
    qrels.write_text('{"query_id": "a", "grades": {"7": 9}}\n')
    with pytest.raises(InvalidInput, match=r"^qrels.jsonl, line 1 "):
        read_questions(queries, qrels)


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        '{"text": "", "relevant_ids": [1]}',
        '{"text": 3, "relevant_ids": [1]}',
        '{"text": "x"}',
        '{"text": "x", "relevant_ids": []}',
        '{"text": "x", "relevant_ids": [1.5]}',
        '{"text": "x", "relevant_ids": [true]}',
        '{"text": "x", "grades": {"1": 1}}',
        '{"text": "x", "grades": {"1": 5}}',
        '{"text": "x", "grades": [1]}',
        '{"text": "x", "relevant_ids": [1], "grades": {"2": 3}}',
        '{"text": "x", "relevant_ids": [1], "conv": []}',
        '{"text": "x", "relevant_ids": [1], "conv": {}}',
        '{"text": "x", "relevant_ids": [1], "conv": true}',
        GOOD,
    ],
)
def test_an_unusable_line_is_named_by_its_number(line: str) -> None:
    """Whoever wrote the file finds the line, and the message does not repeat its text."""
    with pytest.raises(InvalidInput, match=r"^Line 3 ") as caught:
        parse_questions([GOOD, "", line])
    assert "what" not in str(caught.value).lower().split()
    assert caught.value.remedy


def test_no_questions_at_all_are_refused() -> None:
    """An empty file measures nothing and does not pass for a result."""
    with pytest.raises(InvalidInput, match="no question"):
        parse_questions(["", "  "])


def test_the_summary_has_every_measure_by_mode_and_stratum() -> None:
    """Its form is what the demo and the operator's quality gate read."""
    exact, other = parse_questions([GOOD, '{"query_id": "b", "text": "y", "stratum": "multihop", "relevant_ids": [1]}'])
    outcomes = [
        Outcome(exact, "lexical", measures.score([3, 4], {3, 4})),
        Outcome(exact, "hybrid", measures.score([3, 9], {3, 4})),
        Outcome(other, "lexical", measures.score([9], {1})),
        Outcome(other, "hybrid", measures.score([1], {1})),
    ]
    summary = summarise(outcomes, ["lexical", "hybrid"])
    assert summary["recall@10"] == {"lexical": 0.5, "hybrid": 0.75}
    assert summary["strata"]["exact"]["recall@10"] == {"lexical": 1.0, "hybrid": 0.5}
    assert summary["queries"] == 2
    assert set(summary) == {"recall@5", "recall@10", "ndcg@10", "mrr", "strata", "queries"}


async def test_questions_are_embedded_in_batches_and_a_busy_embedder_is_waited_for() -> None:
    """Sixty-four texts go in one request, equal texts once, and a batch that was refused for now once more."""
    sizes: list[int] = []

    class Embedder:
        model: str | None = "m"

        async def embed_queries(self, texts: Any, /) -> EmbeddedBatch:
            sizes.append(len(texts))
            if len(sizes) == 2:
                raise EmbedderBusy("full", retry_after=0.001)
            return EmbeddedBatch(np.ones((len(texts), 2), dtype=np.float32), 0)

    lines = [f'{{"query_id": "{n}", "text": "q{n % 70}", "relevant_ids": [1]}}' for n in range(80)]
    vectors = await embed_questions(parse_questions(lines), Embedder())
    assert (sizes, len(vectors)) == ([64, 6, 6], 70)
    assert vectors["q0"].model == "m"
