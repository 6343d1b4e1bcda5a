"""Takes in the requests for computing: who may send them, how their bodies are read, and what is wrong with texts."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Collection
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel

from memory_embedder.errors import EmbedderError, ErrorKind
from memory_embedder.http.bodies import SMALL_BYTES, MemoryBudget, MemoryShare, check_structure, read_body
from memory_embedder.http.guards import ApiKeys
from memory_embedder.http.schemas import ErrorEnvelope
from memory_embedder.scheduling.service import EmbeddingService

Parsed = TypeVar("Parsed")

_WATCH_DELAY_SECONDS = 0.05  # most queries are answered by then, without a task that waits for a disconnect

_DESCRIPTIONS = {
    400: "There is no text to compute.",
    401: "The API key is missing or wrong.",
    404: "Another model than the served one was asked for, or no reranker is served.",
    408: "The body did not arrive in time.",
    413: "The request is larger than one request may be.",
    422: "The request is malformed, or too long with truncate=false.",
    429: "The queue is full; Retry-After tells when there will be room.",
    503: "Loading, shutting down, or the engine failed.",
}
ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorEnvelope, "description": text} for status, text in _DESCRIPTIONS.items()
}


# What is neither a space nor a control, a mark of direction or another character of no width.
_SOMETHING = re.compile(
    r"[^\s\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)


class Intake:
    """Takes in the requests of all routes that compute; large bodies are parsed on `parser`, one at a time."""

    def __init__(self, service: EmbeddingService, api_key: ApiKeys, parser: Executor) -> None:
        self._service = service
        self._api_key = api_key
        self._parser = parser
        self.budget = MemoryBudget(service.limits.large_bytes)

    def admit(self, request: Request) -> bytes | None:
        """Check the API key and that requests are served; return the digest of the key, or None if none is required.

        Raises:
            EmbedderError: the key is missing or wrong, or requests are not served.
        """
        caller = self._api_key.check(request.headers.get("authorization"))
        self._service.require_serving()
        return caller

    async def read(self, request: Request, share: MemoryShare, parse: Callable[[bytes], Parsed]) -> Parsed:
        """Read a body and return what `parse` makes of it.

        Raises:
            EmbedderError: the body is too large, late or malformed, or has too many values.
        """
        limits = self._service.limits
        body = await read_body(request, share, limits.body_bytes, limits.body_seconds)

        def check_and_parse() -> Parsed:
            check_structure(body)
            return parse(body)

        if len(body) <= SMALL_BYTES:
            return check_and_parse()
        return await asyncio.get_running_loop().run_in_executor(self._parser, check_and_parse)


@asynccontextmanager
async def while_connected(request: Request) -> AsyncIterator[None]:
    """Cancel the block, whatever it waits for, once the caller has closed the connection.

    Raises:
        EmbedderError: the caller has closed the connection.
    """
    loop, limit = asyncio.get_running_loop(), asyncio.timeout(None)
    watches: list[asyncio.Task[None]] = []

    async def watch() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        limit.reschedule(loop.time())

    try:
        async with limit:
            timer = loop.call_later(_WATCH_DELAY_SECONDS, lambda: watches.append(loop.create_task(watch())))
            try:
                yield
            finally:
                timer.cancel()
                for task in watches:
                    task.cancel()
    except TimeoutError:
        if not limit.expired():
            raise
        raise EmbedderError(ErrorKind.CLIENT_GONE, "The caller closed the connection.") from None


def request_body(model: type[BaseModel]) -> dict[str, Any]:
    """Return the OpenAPI description of a body that a route parses by itself, so that FastAPI does not know it."""
    schema = model.model_json_schema()
    inline = _inlined(schema, schema.pop("$defs", {}))
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": inline}}}}


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:  # noqa: ANN401 -- any part of a JSON document
    """Return a part of a JSON schema in which each `$ref` is replaced by what it refers to."""
    if isinstance(schema, list):
        return [_inlined(part, definitions) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    return {name: _inlined(part, definitions) for name, part in schema.items()}


def check_text(name: str, text: str, param: str) -> None:
    """Check that a text can be tokenised; `name` is what messages call it.

    Raises:
        EmbedderError: the text is malformed, or has nothing but spaces and characters that show nothing.
    """
    kind = fault_of(text)
    if kind is ErrorKind.EMPTY_INPUT:
        raise EmbedderError(kind, f"{name} is empty; there is nothing to compute.", param=param)
    if kind is ErrorKind.MALFORMED:
        raise EmbedderError(kind, f"{name} holds unpaired surrogates, which are no text.", param=param)


def fault_of(text: str) -> ErrorKind | None:
    """Return why a text cannot be tokenised: `EMPTY_INPUT` or `MALFORMED`, or None if it can."""
    if _SOMETHING.search(text) is None:
        return ErrorKind.EMPTY_INPUT
    try:
        text.encode()
    except UnicodeEncodeError:
        return ErrorKind.MALFORMED
    return None


def check_model(given: str | None, served: str, aliases: Collection[str] = ()) -> None:
    """Check that a request names the served model by its name or an alias, or none.

    Raises:
        EmbedderError: the request names another model.
    """
    if given is not None and given != served and given not in aliases:
        raise EmbedderError(
            ErrorKind.UNKNOWN_MODEL,
            f"That model is not served here; this service serves '{served}'.",
            param="model",
        )
