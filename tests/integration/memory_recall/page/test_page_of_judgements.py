"""A person labels questions by keyboard alone, in a real browser."""

import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from selenium.webdriver.common.keys import Keys

from memory_recall.contrib.labelling.label_file import LabelFile
from memory_recall.contrib.labelling.labeller import Labeller
from memory_recall.contrib.labelling.labels import Asked, Drawn
from memory_recall.contrib.labelling.store import ShownMemory
from memory_recall.contrib.page.judging import Judging as JudgingView
from memory_recall.evaluation.evaluate import parse_questions
from tests.integration.memory_recall.page.judging import Judging, judging
from tests.integration.memory_recall.page.serving import served
from tests.unit.memory_recall.labelling.fake_store import FakeStore, state

MARKUP = "<img src=x onerror=alert(1)> & <b>bold</b>"


class WithMarkup(FakeStore):
    """Every pool has two memories, of which one is text that a careless page would take for markup."""

    async def pool(self, question: Asked) -> list[int]:
        return self.pools.get(question.query_id, [1, 3])

    async def read(self, memory_id: int, *, user: str | None) -> ShownMemory | None:
        return ShownMemory(MARKUP) if memory_id == 3 else await super().read(memory_id, user=user)


def view(path: Path) -> JudgingView:
    return JudgingView(Labeller(LabelFile(path), WithMarkup()), path.with_suffix(".questions.jsonl"))


def grade(page: Judging) -> str:
    """What a person would press who finds that memory 1 answers everything."""
    return "3" if page.content == "memory number 1" else "0"


def write_and_judge_the_first_questions(address: str) -> None:
    with judging(address) as page:
        assert page.text("progress") == "Memory 1 of 3"
        page.press("is it u, x, e or q?" + Keys.ENTER)
        page.press(Keys.ESCAPE)
        page.press(Keys.BACKSPACE)
        page.press("which one was it?" + Keys.ENTER)
        page.press(Keys.ESCAPE)
        assert page.text("progress") == "Question 1 of 25, memory 1 of 2"
        page.press("1")
        page.press("u")
        for _ in range(20):
            page.press(grade(page))
        assert page.text("progress") == "Question 11 of 25, memory 1 of 2"


def judge_the_rest(address: str, output: Path) -> None:
    with judging(address) as page:
        page.press("x")
        shown = []
        while page.task:
            shown.append(page.content)
            page.press(grade(page))
        assert MARKUP in shown
        assert page.text("done").startswith("Everything is judged.")
        page.send("e")
        said = page.said()
        assert f"20 questions written to {output}" in said
        assert "judged twice: 1.00" in said
        assert "Stratum written has 2 questions" in said
        assert {urlsplit(one).netloc for one in page.loaded()} == {urlsplit(address).netloc}
        page.send("q")


@pytest.mark.promise("page-loads-nothing")
async def test_twenty_questions_are_labelled_by_keyboard_across_two_sessions_and_exported(tmp_path: Path) -> None:
    """The page begins with this view.

    Browser and server end in the middle. Two questions are written on the page, and one of 21 is left out.
    """
    path, output = tmp_path / "labels.json", tmp_path / "labels.questions.jsonl"
    LabelFile(path).save(state(19).after(Drawn(memory_ids=[5, 6, 7], stratum="written")))
    async with served(judging=view(path)) as (address, _):
        await asyncio.to_thread(write_and_judge_the_first_questions, address)
    async with served(judging=view(path)) as (address, server):
        await asyncio.to_thread(judge_the_rest, address, output)
        async with asyncio.timeout(60):
            await server
    questions = parse_questions(output.read_text().split("\n"))
    assert len(questions) == 20
    assert {question.relevant for question in questions} == {frozenset({1})}
    assert [question.text for question in questions[-2:]] == ["is it u, x, e or q?", "which one was it?"]
