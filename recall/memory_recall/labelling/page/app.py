"""The routes of the page.

Every route that changes something answers with the next screen. The answer to an error contains its message and remedy,
which never quote a text. The answer to an unexpected error contains only its class.
"""

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from memory_recall.errors import InvalidInput, MemoryIndexError
from memory_recall.labelling.export import as_json_lines, exported_questions, summarise
from memory_recall.labelling.labeller import GRADES, Labeller
from memory_recall.private_file import write_private_file

_FILES = {
    "": ("index.html", "text/html"),
    "page.js": ("page.js", "text/javascript"),
    "page.css": ("page.css", "text/css"),
}
_LARGEST_BODY = 16_384  # bytes
_BODY_SECONDS = 10.0
Action = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


def page_app(labeller: Labeller, output: Path, *, stop: Callable[[], None]) -> Starlette:
    """Return the application of the page. Exports go to `output`, and `stop` ends the server."""

    async def screen() -> dict[str, Any]:
        return dataclasses.asdict(await labeller.screen()) | {"grades": GRADES}

    async def answer(given: dict[str, Any]) -> dict[str, Any]:
        task, kind = _text(given, "task"), given.get("kind")
        if kind == "grade":
            await labeller.grade(task, _number(given, "grade"))
        elif kind == "write":
            await labeller.write(task, _text(given, "text"))
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

    actions: dict[str, Action] = {"answer": answer, "export": export, "finish": finish}
    return Starlette(
        routes=[
            *(Route(f"/{name}", partial(_serve_file, *found)) for name, found in _FILES.items()),
            Route("/screen", partial(_run, show)),
            *(Route(f"/{name}", partial(_run, action), methods=["POST"]) for name, action in actions.items()),
        ]
    )


async def _serve_file(name: str, media_type: str, _: Request) -> Response:
    content = resources.files(__package__).joinpath(name).read_bytes()
    return Response(content, media_type=media_type)


async def _run(action: Action, request: Request) -> Response:
    try:
        given = await _body(request) if request.method == "POST" else {}
        return JSONResponse(await action(given))
    except InvalidInput as error:
        return _refused(422, error.message, error.remedy)
    except MemoryIndexError as error:
        return _refused(503, f"{error.reason}: {error.message}", error.remedy)
    except Exception as error:  # noqa: BLE001  (its message may quote a text, and the server's log would have it)
        return _refused(500, f"An unexpected {type(error).__name__}.", "Nothing that was stored is lost.")


def _refused(status: int, message: str, remedy: str) -> JSONResponse:
    return JSONResponse({"message": message, "remedy": remedy}, status)


async def _body(request: Request) -> dict[str, Any]:
    body = b""
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > _LARGEST_BODY:
                    raise InvalidInput("The request is too large.", "Write a shorter question.")
        given = json.loads(body)
    except (TimeoutError, ValueError):
        raise InvalidInput("The request is not complete JSON.", "Load the page again.") from None
    if not isinstance(given, dict):
        raise InvalidInput("The request is no object.", "Load the page again.")
    return given


def _text(given: dict[str, Any], name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str):
        raise InvalidInput(f"`{name}` is no text.", "Load the page again.")
    return value


def _number(given: dict[str, Any], name: str) -> int:
    value = given.get(name)
    if type(value) is not int:
        raise InvalidInput(f"`{name}` is no number.", "Load the page again.")
    return value
