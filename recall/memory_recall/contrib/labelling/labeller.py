"""Takes the answers of a person one by one, and stores each before the next task is shown.

The terminal and the page use the same `Labeller`. A task is shown under an opaque id, and an answer names the id of the
task that it belongs to. So an answer that is sent twice, or from a page that shows an older task, changes nothing.
"""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from memory_recall.contrib.labelling import agenda
from memory_recall.contrib.labelling.agenda import Judge, Pool, Progress, Write
from memory_recall.contrib.labelling.label_file import LabelFile
from memory_recall.contrib.labelling.labels import Asked, Declined, Dropped, Event, Graded, Labels, Pooled
from memory_recall.contrib.labelling.store import ShownMemory, Store
from memory_recall.errors import InvalidInput
from memory_recall.schema.columns.keys import MemoryId

MOST_WRITTEN_CHARACTERS = 2_000
GRADES = {
    3: "answers the question",
    2: "answers a part of it",
    1: "only concerns it",
    0: "has nothing to do with it",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """A task as the person sees it. `question` is None if a question is to be written for the memory."""

    id: str
    question: str | None
    stratum: str | None
    memory: ShownMemory


@dataclass(frozen=True, slots=True)
class Screen:
    """The task that is shown, or None if everything is done, and how much is done."""

    task: Shown | None
    progress: Progress
    can_undo: bool


class Labeller:
    """Shows tasks and stores answers. It is safe for concurrent use."""

    def __init__(self, file: LabelFile, store: Store) -> None:
        self._file = file
        self._store = store
        self._turn = asyncio.Lock()
        self.withdrawn = 0
        """How many questions were removed: their memories may not be shown, or the table cannot have their user."""

    @property
    def labels(self) -> Labels:
        """The present state, as it is on the disk."""
        return self._file.labels

    async def screen(self) -> Screen:
        """Return what to show now. If the next question has no pool yet, its pool is found first.

        Raises:
            MemoryIndexError: the database, the embedder or the file fails.
        """
        async with self._turn:
            while True:
                labels = self._file.labels
                task = agenda.next_task(labels)
                if isinstance(task, Pool):
                    await self._pool(task.question)
                    continue
                if task is None:
                    return Screen(None, agenda.progress(labels, None), labels.last_answer is not None)
                if isinstance(task, Judge) and await self._withdraw_if_hidden(task.question):
                    continue
                memory = await self._readable(task.memory_id, _conv(task))
                if memory is not None:
                    return Screen(_shown(task, memory), agenda.progress(labels, task), labels.last_answer is not None)

    async def grade(self, task_id: str, grade: int) -> bool:
        """Store a grade, 0 to 3. Return True, or False without storing it if another task is shown by now."""
        if grade not in GRADES:
            raise InvalidInput(f"There is no grade {grade}.", "Give a grade from 0 to 3.")

        def graded(task: Write | Judge) -> Event:
            if isinstance(task, Write):
                raise InvalidInput("This memory is to get a question, not a grade.", "Write a question.")
            return Graded(query_id=task.question.query_id, memory_id=task.memory_id, round=task.round, grade=grade)

        return await self._answer(task_id, graded)

    async def write(self, task_id: str, text: str) -> bool:
        """Store the question for a drawn memory. Return whether it was stored."""
        if not text.strip() or len(text) > MOST_WRITTEN_CHARACTERS:
            raise InvalidInput(
                "This is no question.", f"Write at least one word and at most {MOST_WRITTEN_CHARACTERS:,} characters."
            )

        def asked(task: Write | Judge) -> Event:
            if isinstance(task, Judge):
                raise InvalidInput("This question has been written.", "Give a grade.")
            draw = task.draw
            question = Asked.with_hashed_id(text.strip(), stratum=draw.stratum, conv=draw.conv, about=task.memory_id)
            if question.query_id in self.labels.query_ids:
                raise InvalidInput("There is this question already.", "Write another one.")
            return question

        return await self._answer(task_id, asked)

    async def leave_out(self, task_id: str) -> bool:
        """Record that the person writes no question for a memory, or does not judge a question.

        Return whether this was stored.
        """

        def left_out(task: Write | Judge) -> Event:
            if isinstance(task, Write):
                return Declined(memory_id=task.memory_id)
            return Dropped(query_id=task.question.query_id)

        return await self._answer(task_id, left_out)

    async def pool_all(self, *, progress: Callable[[], None]) -> int:
        """Search for every question again, and add what is found to its pool. Return how many memories were added.

        Raises:
            MemoryIndexError: the database, the embedder or the file fails.
        """
        added = 0
        async with self._turn:
            for question in self.labels.questions:
                added += await self._pool(question)
                progress()
        return added

    async def withdraw_hidden(self) -> None:
        """Remove every question whose memory has become sensitive or was deleted since the question was written.

        Raises:
            MemoryIndexError: the database or the file fails.
        """
        async with self._turn:
            for question in self.labels.questions:
                await self._withdraw_if_hidden(question)

    async def undo(self) -> None:
        """Take back the last answer, if there is one."""
        async with self._turn:
            if self.labels.last_answer is not None:
                self._file.save(self.labels.undone())

    async def _pool(self, question: Asked) -> int:
        """Pool one question, together with the memory for which it was written. Return how many memories are new.

        Pooling sends the question to the embedder. So if the memory for which it was written must not be shown any
        more, the question is removed instead. So is one that is asked of a user whom the table cannot have, unless it
        had a pool before, and may have judgements.
        """
        if await self._withdraw_if_hidden(question):
            return 0
        try:
            pooled = await self._store.pool(question)
        except InvalidInput:
            if question.query_id in self.labels.pools:
                raise
            self.withdrawn += 1
            self._file.save(self.labels.without({question.query_id}))
            return 0
        found = {*pooled, *([] if question.about is None else [question.about])}
        new = sorted(found.difference(self.labels.pools.get(question.query_id, []), self.labels.withdrawn))
        if new or question.query_id not in self.labels.pools:
            self._file.save(self.labels.after(Pooled(query_id=question.query_id, memory_ids=new)))
        return len(new)

    async def _withdraw_if_hidden(self, question: Asked) -> bool:
        """Remove a question whose memory must not be shown any more; return whether it was removed."""
        return question.about is not None and await self._readable(question.about, question.conv) is None

    async def _readable(self, memory_id: MemoryId, user: str | None) -> ShownMemory | None:
        """Return a memory of the user, or of anybody if `user` is None, as it may be shown now.

        One that is sensitive, deleted, missing or another user's is withdrawn.
        """
        memory = await self._store.read(memory_id, user=user)
        if memory is None:
            left = self.labels.withdraw(memory_id)
            self.withdrawn += len(self.labels.query_ids) - len(left.query_ids)
            self._file.save(left)
        return memory

    async def _answer(self, task_id: str, event: Callable[[Write | Judge], Event]) -> bool:
        async with self._turn:
            task = agenda.next_task(self.labels)
            if not isinstance(task, Write | Judge) or _task_id(task) != task_id:
                return False
            self._file.save(self.labels.after(event(task)))
            return True


def _shown(task: Write | Judge, memory: ShownMemory) -> Shown:
    if isinstance(task, Write):
        return Shown(_task_id(task), None, task.draw.stratum, memory)
    return Shown(_task_id(task), task.question.text, task.question.stratum, memory)


def _conv(task: Write | Judge) -> str | None:
    return task.draw.conv if isinstance(task, Write) else task.question.conv


def _task_id(task: Write | Judge) -> str:
    name = "write" if isinstance(task, Write) else f"{task.question.query_id}:{task.round}"
    return hashlib.sha256(f"{name}:{task.memory_id}".encode()).hexdigest()[:16]
