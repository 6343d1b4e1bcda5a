"""What the view of judgements can do. Every action that changes something answers with the next screen."""

import asyncio
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from memory_recall.contrib.labelling.export import as_json_lines, exported_questions, summarise
from memory_recall.contrib.labelling.labeller import GRADES, Labeller
from memory_recall.contrib.local_page.routes import number_of, text_of
from memory_recall.errors import InvalidInput
from memory_recall.private_file import write_private_file


@dataclass(frozen=True, slots=True)
class Judging:
    """Judges the questions of a `Labeller`. Exports go to `output`."""

    labeller: Labeller
    output: Path

    async def screen(self, _: dict[str, Any]) -> dict[str, Any]:
        """Return the task to show, how much is done, and the grades.

        Raises:
            MemoryIndexError: the database, the embedder or the file fails.
        """
        return asdict(await self.labeller.screen()) | {"grades": GRADES}

    async def answer(self, given: dict[str, Any]) -> dict[str, Any]:
        """Store an answer and return the next screen.

        Raises:
            InvalidInput: it is no answer.
            MemoryIndexError: the database, the embedder or the file fails.
        """
        labeller, task, kind = self.labeller, text_of(given, "task"), given.get("kind")
        if kind == "grade":
            await labeller.grade(task, number_of(given, "grade"))
        elif kind == "write":
            await labeller.write(task, text_of(given, "text"))
        elif kind == "leave_out":
            await labeller.leave_out(task)
        elif kind == "undo":
            await labeller.undo()
        else:
            raise InvalidInput("There is no such answer.", "Load the page again.")
        return await self.screen({})

    async def export(self, _: dict[str, Any]) -> dict[str, Any]:
        """Write the judged questions to their file, and return its name and what is in it.

        Raises:
            MemoryIndexError: the database or a file fails.
        """
        await self.labeller.withdraw_hidden()
        questions = exported_questions(self.labeller.labels)
        await asyncio.to_thread(write_private_file, self.output, as_json_lines(questions))
        withdrawn = {"withdrawn": self.labeller.withdrawn}
        return {"file": str(self.output)} | asdict(summarise(self.labeller.labels)) | withdrawn
