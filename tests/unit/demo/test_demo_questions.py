"""The choice of questions shown: restatements, spread over the set, those first that show a difference."""

from io import StringIO

from rich.console import Console

from devcluster.demo.dataset import Dataset, LabelledQuery, Query
from devcluster.demo.questions import Answer, Comparison, candidates, most_different, table


def question(number: int, stratum: str = "paraphrase", relevant: tuple[int, ...] = (1,)) -> LabelledQuery:
    return LabelledQuery(Query(query_id=f"q{number}", text=f"question {number}", stratum=stratum), relevant)


def comparison(number: int, lexical: list[int], hybrid: list[int]) -> Comparison:
    answers = [tuple(Answer(identifier, f"memory {identifier} [x]") for identifier in ids) for ids in (lexical, hybrid)]
    return Comparison(question(number), *answers)


def test_restatements_are_preferred_and_spread_over_the_set() -> None:
    queries = tuple(question(number, "exact" if number % 2 else "paraphrase") for number in range(40))
    chosen = candidates(Dataset("set", (), queries), count=4)
    assert [one.query.query_id for one in chosen] == ["q0", "q10", "q20", "q30"]


def test_a_set_without_restatements_still_yields_questions() -> None:
    queries = tuple(question(number, "single") for number in range(3))
    assert len(candidates(Dataset("set", (), queries), count=8)) == 3


def test_questions_whose_answers_differ_most_come_first_in_either_direction() -> None:
    questions = [question(number) for number in range(4)]
    chosen = most_different(questions, {"q0": 0.0, "q1": 0.2, "q2": -0.5, "q3": 0.2}, 3)
    assert [one.query.query_id for one in chosen] == ["q2", "q1", "q3"]


def test_relevant_memories_are_marked_and_memory_text_is_escaped() -> None:
    console = Console(file=StringIO(), width=160)
    console.print(table(comparison(1, [2], [1, 2])))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "✓ memory 1 [x]" in shown
    assert "✓ memory 2" not in shown
