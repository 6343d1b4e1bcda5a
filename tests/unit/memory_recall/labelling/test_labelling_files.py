"""What labelling reads and writes: its state, questions from elsewhere, and judged questions."""

import json
import stat
from pathlib import Path

import pytest

from memory_recall.contrib.labelling.agreement import agreement, cohens_kappa
from memory_recall.contrib.labelling.collecting import imported, logged
from memory_recall.contrib.labelling.export import as_json_lines, exported_questions, summarise
from memory_recall.contrib.labelling.label_file import LabelFile
from memory_recall.contrib.labelling.labels import Dropped, Graded, Labels, Pooled, Round
from memory_recall.errors import InvalidInput
from memory_recall.evaluation.evaluate import parse_questions
from memory_recall.private_file import write_private_file
from memory_recall.search.query import RecallQuery
from memory_recall.search.sql.visibility import EVERYONE
from tests.unit.memory_recall.labelling.fake_store import FakeStore, state
from tests.unit.memory_recall.labelling.test_labelling_order import judge_all, labeller

REQUEST = {"context": "the wifi", "expanded_query": "wlan", "user_id": "ana", "is_sensitive": False}


def graded(query_id: str, grades: dict[int, int], judged: Round = 1) -> list[Graded]:
    return [Graded(query_id=query_id, memory_id=one, round=judged, grade=grade) for one, grade in grades.items()]


async def test_each_answer_is_on_the_disk_before_the_next_task_is_shown(tmp_path: Path) -> None:
    """A process that is killed loses nothing, and the next one goes on where it was."""
    path = tmp_path / "labels.json"
    first = labeller(path, state(5))
    await judge_all(first, lambda task: len(task.memory.content) % 4, most=7)
    again = labeller(path, Labels())
    assert again.labels == first.labels
    assert (await again.screen()).task == (await first.screen()).task


def test_files_are_readable_by_their_owner_alone_and_no_half_one_is_left(tmp_path: Path) -> None:
    """Even where a former one was readable by everybody."""
    path = tmp_path / "labels.json"
    path.write_text("")
    path.chmod(0o644)
    write_private_file(path, b"{}")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(InvalidInput):
        write_private_file(tmp_path / "missing" / "labels.json", b"{}")
    assert [one.name for one in tmp_path.iterdir()] == ["labels.json"]


def test_two_processes_do_not_overwrite_each_other_s_answers(tmp_path: Path) -> None:
    path = tmp_path / "labels.json"
    LabelFile(path).save(state(1))
    one, other = LabelFile(path), LabelFile(path)
    one.save(state(2))
    with pytest.raises(InvalidInput, match="another process"):
        other.save(state(3))
    assert LabelFile(path).labels == state(2)


@pytest.mark.parametrize("content", ["", "{}x", '{"version": 2}', '{"events": [{"kind": "secret text"}]}'])
def test_a_file_that_is_no_state_is_refused_without_quoting_it(content: str, tmp_path: Path) -> None:
    path = tmp_path / "labels.json"
    path.write_text(content)
    with pytest.raises(InvalidInput, match="is no state of a labelling") as refused:
        LabelFile(path)
    assert "secret" not in str(refused.value)


def test_imported_questions_keep_what_they_have_and_are_imported_once() -> None:
    lines = [
        '{"query_id": 7, "text": "which pump?", "stratum": "exact", "conv": "ana", "relevant_ids": [5]}',
        '{"text": "which tap?", "conv": "all"}',
        "",
    ]
    found = imported(Labels(), lines, stratum="mine")
    first, second = found.questions
    assert (first.query_id, first.stratum, first.conv, first.known) == ("7", "exact", "ana", [5])
    assert (second.text, second.stratum, second.conv) == ("which tap?", "mine", None)
    again = imported(Labels().after(*found.questions), lines, stratum="mine")
    assert (again.questions, again.repeated) == ([], 2)
    with pytest.raises(InvalidInput, match="two questions with the query_id '7'"):
        imported(Labels().after(*found.questions), ['{"query_id": "7", "text": "another"}'], stratum="mine")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("secret", "Line 1 is not JSON"),
        ('{"text": "  "}', "Line 1, text"),
        ('{"text": "secret", "relevant_ids": [["secret"]]}', "Line 1, relevant_ids.0"),
        ('["secret"]', "Line 1, the object"),
    ],
)
def test_a_malformed_line_is_named_by_its_number_and_not_quoted(line: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as refused:
        imported(Labels(), [line], stratum="mine")
    assert "secret" not in str(refused.value)


def test_logged_queries_are_drawn_by_the_seed_and_those_marked_as_sensitive_never() -> None:
    """Whatever the mark is, if it is not false; the same query of one user counts once."""
    marks = [True, 1, "no", None]
    lines = [json.dumps(REQUEST | {"is_sensitive": mark, "context": "secret"}) for mark in marks]
    lines += [json.dumps(REQUEST | {"context": f"query {number}"}) for number in range(30)]
    lines += [json.dumps(REQUEST | {"context": "query 1"}), '{"context": "query 1", "user_id": "ben"}']
    every = logged(Labels(), lines, stratum="logged", sample=100, seed=0)
    assert (len(every.questions), every.sensitive, every.repeated) == (31, 4, 1)
    assert all("secret" not in one.text for one in every.questions)
    assert {one.text for one in every.questions if one.conv == "ben"} == {"query 1"}
    some = [logged(Labels(), lines, stratum="logged", sample=10, seed=seed).questions for seed in (1, 1, 2)]
    assert some[0] == some[1] != some[2]
    assert {len(one) for one in some} == {10}


def test_a_logged_query_names_its_user_or_says_that_there_is_none() -> None:
    """A blank name would be that of nobody whose memories can be searched."""
    (question,) = logged(
        Labels(), [json.dumps(REQUEST | {"user_id": None})], stratum="logged", sample=1, seed=0
    ).questions
    assert question.conv is None
    for line in (json.dumps(REQUEST | {"user_id": " "}), '{"context": "the wifi"}'):
        with pytest.raises(InvalidInput, match="Line 1, user_id"):
            logged(Labels(), [line], stratum="logged", sample=1, seed=0)


@pytest.mark.parametrize(("context", "expanded"), [(49_990, 20), (60_000, 0), (60_000, 60_000)])
def test_a_long_logged_query_is_cut_as_a_recall_cuts_it(context: int, expanded: int) -> None:
    given = {"context": "c" * context, "expanded_query": "e" * expanded}
    (question,) = logged(Labels(), [json.dumps(REQUEST | given)], stratum="logged", sample=1, seed=0).questions
    assert question.text == RecallQuery(f"{given['context']} {given['expanded_query']}", user_id="ana").text
    assert len(question.text) == 50_000


@pytest.mark.parametrize("context", ["", "  ", "\0", " \0\n"])
def test_a_logged_query_without_a_word_is_named_by_its_line(context: str) -> None:
    with pytest.raises(InvalidInput, match="Line 2, context: Input should have a word"):
        logged(Labels(), ["", json.dumps(REQUEST | {"context": context})], stratum="logged", sample=1, seed=0)


def test_what_is_exported_is_what_evaluate_reads() -> None:
    """Grades 2 and 3 are relevant; a question without such a memory, or not judged to its end, is left out."""
    labels = state(5).after(
        Pooled(query_id="q1", memory_ids=[1, 2, 3]), *graded("q1", {1: 3, 2: 2, 3: 1}),
        Pooled(query_id="q2", memory_ids=[1]), *graded("q2", {1: 1}),
        Pooled(query_id="q3", memory_ids=[1, 2]), *graded("q3", {1: 3}),
        Pooled(query_id="q4", memory_ids=[1]), *graded("q4", {1: 3}), Dropped(query_id="q4"),
    )  # fmt: skip
    lines = as_json_lines(exported_questions(labels)).decode()
    (read,) = parse_questions(lines.split("\n"))
    assert (read.query_id, read.text, read.stratum, read.relevant) == ("q1", "question number 1", "imported", {1, 2})
    assert read.user_id == EVERYONE
    assert json.loads(lines)["grades"] == {"1": 3, "2": 2, "3": 1}
    summary = summarise(labels)
    assert (summary.questions, summary.unanswered, summary.unjudged) == (1, 1, 2)


def test_a_stratum_of_fewer_than_fifty_questions_is_warned_of() -> None:
    labels = state(50)
    for number in range(1, 51):
        labels = labels.after(Pooled(query_id=f"q{number}", memory_ids=[1]), *graded(f"q{number}", {1: 3}))
    assert summarise(labels).warnings == []
    (warning,) = summarise(labels.after(Dropped(query_id="q9"))).warnings
    assert "imported has 49 questions" in warning


def test_kappa_is_that_of_a_published_example() -> None:
    """J. Cohen's own table of 1960: 200 pairs in three categories, of which .70 agree and .41 would by chance."""
    table = [[88, 14, 18], [10, 40, 10], [2, 6, 12]]
    pairs = [
        (first, second) for first, row in enumerate(table) for second, count in enumerate(row) for _ in range(count)
    ]
    assert cohens_kappa(pairs) == pytest.approx((0.70 - 0.41) / (1 - 0.41))
    assert cohens_kappa([(0, 1), (1, 0)]) == -1
    assert cohens_kappa([]) is None
    assert cohens_kappa([(2, 2)] * 9) is None


async def test_kappa_compares_the_two_judgements_of_the_same_memory(tmp_path: Path) -> None:
    """A person who always says the same agrees wholly; of the grades 2 and 3 both are relevant."""
    by = labeller(tmp_path / "labels.json", state(10), FakeStore(pools={"q1": [1]}))
    await judge_all(by, lambda task: int(task.memory.content[-1]))
    first = agreement(by.labels)
    assert (first.judged_twice, first.grades, first.relevant) == (6, 1, 1)
    name = next(one for one, judged in by.labels.grades if judged == 2)
    shifted = by.labels.after(Graded(query_id=name, memory_id=2, round=2, grade=3))
    assert agreement(shifted).grades == pytest.approx(0.75)
    assert agreement(shifted).relevant == 1
