"""What the page can do. Every action that changes something answers with the next screen."""

import asyncio
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette

from memory_recall.contrib.labelling.export import as_json_lines, exported_questions, summarise
from memory_recall.contrib.labelling.labeller import GRADES, Labeller
from memory_recall.contrib.local_page.routes import number_of, page_routes, text_of
from memory_recall.errors import InvalidInput
from memory_recall.private_file import write_private_file


def page_app(labeller: Labeller, output: Path, *, stop: Callable[[], None]) -> Starlette:
    """Return the application of the page. Exports go to `output`, and `stop` ends the server."""

    async def screen() -> dict[str, Any]:
        return dataclasses.asdict(await labeller.screen()) | {"grades": GRADES}

    async def answer(given: dict[str, Any]) -> dict[str, Any]:
        task, kind = text_of(given, "task"), given.get("kind")
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
        return await screen()

    async def show(_: dict[str, Any]) -> dict[str, Any]:
        return await screen()

    async def export(_: dict[str, Any]) -> dict[str, Any]:
        await labeller.withdraw_hidden()
        questions = exported_questions(labeller.labels)
        await asyncio.to_thread(write_private_file, output, as_json_lines(questions))
        return {"file": str(output)} | dataclasses.asdict(summarise(labeller.labels))

    async def finish(_: dict[str, Any]) -> dict[str, Any]:
        stop()
        return {}

    return page_routes(
        __package__, reads={"screen": show}, actions={"answer": answer, "export": export, "finish": finish}
    )
