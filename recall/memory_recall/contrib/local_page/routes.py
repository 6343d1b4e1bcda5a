"""The routes of a page: the files of its package, and actions that take and return JSON.

The file index.html is the page itself. The answer to an error contains its message and remedy, which never quote a
text. The answer to an unexpected error contains only its class.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from importlib import resources
from pathlib import PurePath
from typing import Any, TypeAlias

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from memory_recall.errors import InvalidInput, MemoryIndexError

_INDEX = "index.html"
_MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_LARGEST_BODY = 16_384  # bytes
_BODY_SECONDS = 10.0
Action: TypeAlias = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


def page_routes(
    package: str, files: Iterable[str], *, reads: Mapping[str, Action], actions: Mapping[str, Action]
) -> Starlette:
    """Return the application of a page that consists of these files of `package`, of which one is index.html.

    `reads` answer GET requests and are given an empty object; `actions` answer POST requests, which only the page
    itself may send, and are given the object in the request's body, of at most 16 KiB.
    """
    return Starlette(
        routes=[
            *(Route(f"/{name.removesuffix(_INDEX)}", partial(_serve_file, package, name)) for name in files),
            *(Route(f"/{name}", partial(_run, action)) for name, action in reads.items()),
            *(Route(f"/{name}", partial(_run, action), methods=["POST"]) for name, action in actions.items()),
        ]
    )


def text_of(given: dict[str, Any], name: str) -> str:
    """Return a text of a request.

    Raises:
        InvalidInput: there is none of this name.
    """
    value = given.get(name)
    if not isinstance(value, str):
        raise InvalidInput(f"`{name}` is no text.", "Load the page again.")
    return value


def number_of(given: dict[str, Any], name: str) -> int:
    """Return an integer of a request.

    Raises:
        InvalidInput: there is none of this name.
    """
    value = given.get(name)
    if type(value) is not int:
        raise InvalidInput(f"`{name}` is no number.", "Load the page again.")
    return value


async def _serve_file(package: str, name: str, _: Request) -> Response:
    content = resources.files(package).joinpath(name).read_bytes()
    return Response(content, media_type=_MEDIA_TYPES[PurePath(name).suffix])


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
                    raise InvalidInput("The request is too large.", "Write a shorter text.")
        given = json.loads(body)
    except (TimeoutError, ValueError):
        raise InvalidInput("The request is not complete JSON.", "Load the page again.") from None
    if not isinstance(given, dict):
        raise InvalidInput("The request is no object.", "Load the page again.")
    return given
