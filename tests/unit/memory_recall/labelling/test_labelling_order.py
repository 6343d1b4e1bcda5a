"""What is judged next follows from the state and its seed alone."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from memory_recall.contrib.labelling.agenda import Judge, Write, next_task, shuffled, visits
from memory_recall.contrib.labelling.export import exported_questions
from memory_recall.contrib.labelling.label_file import LabelFile
from memory_recall.contrib.labelling.labeller import Labeller, Shown
from memory_recall.contrib.labelling.labels import Asked, Drawn, Graded, Labels, Pooled
from memory_recall.errors import InvalidInput
from tests.unit.memory_recall.labelling.fake_store import FakeStore, asked, state


def labeller(path: Path, labels: Labels, store: FakeStore | None = None) -> Labeller:
    file = LabelFile(path)
    if not file.exists:
        file.save(labels)
    return Labeller(file, store or FakeStore())


async def shown(by: Labeller) -> Shown:
    task = (await by.screen()).task
    assert task is not None
    return task


async def judge_all(by: Labeller, grade: Callable[[Shown], int], *, most: int = 10_000) -> int:
    """Judge until nothing is left, or `most` times; return how many grades were given."""
    for given in itertools.count():
        screen = await by.screen()
        if screen.task is None or given == most:
            return given
        assert await by.grade(screen.task.id, grade(screen.task))
    raise AssertionError


@pytest.mark.parametrize(("questions", "twice"), [(4, 0), (5, 1), (9, 1), (20, 4), (22, 4)])
def test_one_question_of_every_five_is_judged_twice_and_never_next_to_its_first_time(
    questions: int, twice: int
) -> None:
    """Between the two lie the next five questions, wherever there are so many."""
    order = [(question.query_id, judged) for question, judged in visits(state(questions))]
    again = [name for name, judged in order if judged == 2]
    assert len(order) == questions + twice
    assert len(set(again)) == twice
    for name in again[:-1]:
        assert order.index((name, 2)) - order.index((name, 1)) > 5


def test_the_seed_alone_decides_what_is_judged_twice_and_in_which_order() -> None:
    """Two seeds differ, and so do the two rounds; a pool's own order has no part in it."""
    again = {seed: [one.query_id for one, judged in visits(state(50, seed)) if judged == 2] for seed in (1, 2)}
    assert again[1] != again[2]
    pool = list(range(1, 30))
    one, other = (state(5, 1).after(Pooled(query_id="q1", memory_ids=ids)) for ids in (pool, list(reversed(pool))))
    assert shuffled(one, "q1", 1) == shuffled(other, "q1", 1) != pool
    assert shuffled(one, "q1", 1) != shuffled(one, "q1", 2)


def test_drawn_memories_come_before_questions_that_are_to_be_judged() -> None:
    labels = state(1).after(Drawn(memory_ids=[9, 4], stratum="paraphrase"))
    first = next_task(labels)
    assert isinstance(first, Write)
    assert first.memory_id == 9


async def test_a_written_question_is_judged_with_the_memory_that_it_was_written_for(tmp_path: Path) -> None:
    """Which may be found by no leg at all."""
    drawn = Labels().after(Drawn(memory_ids=[9, 4], stratum="paraphrase", conv="ana"))
    by = labeller(tmp_path / "labels.json", drawn)
    assert await by.write((await shown(by)).id, "  what was it again?  ")
    assert await by.leave_out((await shown(by)).id)
    await by.screen()
    (question,) = by.labels.questions
    assert (question.text, question.stratum, question.conv) == ("what was it again?", "paraphrase", "ana")
    assert by.labels.pools == {question.query_id: [1, 2, 3, 9]}


async def test_every_answer_can_be_taken_back_one_after_the_other(tmp_path: Path) -> None:
    """Down to the state before the first; an import is no answer."""
    drawn = state(1).after(Drawn(memory_ids=[9, 4], stratum="paraphrase"))
    by = labeller(tmp_path / "labels.json", drawn)
    seen = [(await shown(by)).id]
    for number, act in enumerate((by.leave_out, lambda task: by.write(task, "why?"), lambda task: by.grade(task, 3))):
        assert await act((await shown(by)).id)
        seen.append((await shown(by)).id)
        assert len(set(seen)) == number + 2
    while seen:
        assert (await shown(by)).id == seen.pop()
        await by.undo()
    assert not (await by.screen()).can_undo
    assert by.labels.questions == state(1).questions
    assert by.labels.unwritten == drawn.unwritten


async def test_an_answer_to_a_task_that_is_no_longer_shown_changes_nothing(tmp_path: Path) -> None:
    """As when a key is pressed twice, or a second page shows an older task."""
    by = labeller(tmp_path / "labels.json", state(2))
    task = await shown(by)
    assert await by.grade(task.id, 3)
    before = by.labels
    assert not await by.grade(task.id, 0)
    assert not await by.leave_out(task.id)
    assert by.labels == before


@pytest.mark.promise("labelling-without-sensitive-memory")
async def test_a_memory_that_has_become_sensitive_is_not_shown_and_neither_is_its_question(tmp_path: Path) -> None:
    """It was drawn, a question was written for it and its pool was made; then its owner marks it."""
    store = FakeStore()
    by = labeller(tmp_path / "labels.json", Labels().after(Drawn(memory_ids=[9], stratum="written")), store)
    await by.write((await shown(by)).id, "which PIN?")
    assert (await shown(by)).question == "which PIN?"
    store.hidden = {9}
    await judge_all(by, lambda task: 0 if task.memory.content != "memory number 9" else pytest.fail("was shown"))
    assert by.labels.questions == []
    store.hidden = {2}
    other = labeller(tmp_path / "other.json", state(1), store)
    assert await judge_all(other, lambda _: 2) == 2
    assert other.labels.pools == {"q1": [1, 3]}


@pytest.mark.promise("question-forgotten-with-its-memory")
async def test_a_question_about_a_memory_that_has_become_sensitive_is_sent_nowhere_and_kept_nowhere(
    tmp_path: Path,
) -> None:
    """It says what the memory says. It was pooled once, and would be pooled again, judged and exported."""
    store = FakeStore()
    path = tmp_path / "labels.json"
    by = labeller(path, Labels().after(Drawn(memory_ids=[8, 9], stratum="written")), store)
    await by.write((await shown(by)).id, "which PIN?")
    await by.leave_out((await shown(by)).id)
    await judge_all(by, lambda _: 3)
    assert [line["text"] for line in exported_questions(by.labels)] == store.embedded == ["which PIN?"]
    store.hidden = {8}
    await by.withdraw_hidden()
    assert exported_questions(by.labels) == []
    assert "PIN" not in path.read_text()
    late = labeller(
        tmp_path / "late.json", Labels().after(Asked(query_id="q", text="PIN", stratum="s", about=8)), store
    )
    assert await late.pool_all(progress=lambda: None) == 0
    assert (await late.screen()).task is None
    assert store.embedded == ["which PIN?"]


async def test_a_pool_that_grows_later_is_judged_where_it_has_grown(tmp_path: Path) -> None:
    """As after a second model has been asked."""
    store = FakeStore()
    by = labeller(tmp_path / "labels.json", state(1), store)
    assert await judge_all(by, lambda _: 0) == 3
    store.pools = {"q1": [2, 3, 4, 5]}
    assert await by.pool_all(progress=lambda: None) == 2
    assert await judge_all(by, lambda _: 1) == 2
    assert by.labels.grades["q1", 1] == {1: 0, 2: 0, 3: 0, 4: 1, 5: 1}


def test_nothing_that_is_shown_tells_the_round() -> None:
    """A person who knew could look up what they said."""
    assert set(Shown.__dataclass_fields__) == {"id", "question", "stratum", "memory"}
    labels = state(5).after(*(Pooled(query_id=f"q{number}", memory_ids=[1]) for number in range(1, 6)))
    labels = labels.after(*(Graded(query_id=f"q{number}", memory_id=1, round=1, grade=0) for number in range(1, 6)))
    last = next_task(labels)
    assert isinstance(last, Judge)
    assert last.round == 2


async def test_no_judgement_is_lost_where_the_table_has_other_users_now(tmp_path: Path) -> None:
    """As after its column of owners got another type."""
    labels = Labels().after(Asked(query_id="q0", text="whose?", stratum="logged", conv="nobody"))
    labels = labels.after(Pooled(query_id="q0", memory_ids=[1]), Graded(query_id="q0", memory_id=1, round=1, grade=3))
    by = labeller(tmp_path / "labels.json", labels)
    with pytest.raises(InvalidInput):
        await by.pool_all(progress=lambda: None)
    assert LabelFile(tmp_path / "labels.json").labels == labels


async def test_a_question_of_a_user_whom_the_table_cannot_have_blocks_no_other(tmp_path: Path) -> None:
    """It is removed and counted; nobody could take it out, since it is never shown."""
    labels = Labels().after(Asked(query_id="q0", text="whose?", stratum="logged", conv="nobody"), asked(1))
    by = labeller(tmp_path / "labels.json", labels)
    assert (await shown(by)).question == "question number 1"
    assert (by.labels.query_ids, by.withdrawn) == ({"q1"}, 1)
