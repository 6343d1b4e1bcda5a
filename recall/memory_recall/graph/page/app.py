"""What the page can do: begin, draw the neighbourhood of a concept, and read a memory."""

import dataclasses
from typing import Any

from starlette.applications import Starlette

from memory_recall.errors import InvalidInput
from memory_recall.graph.page.layout import drawn
from memory_recall.graph.page.reading import Reader
from memory_recall.local_page.routes import number_of, page_routes, text_of

_LARGEST_ID = 2**63 - 1


def page_app(reader: Reader, concept: str | None) -> Starlette:
    """Return the application of the page, which begins with `concept`, or with an empty picture if it is None."""

    async def begin(_: dict[str, Any]) -> dict[str, Any]:
        return {"concept": concept, "user": reader.user}

    async def look(given: dict[str, Any]) -> dict[str, Any]:
        found = await reader.neighbourhood(text_of(given, "concept"))
        if not found.newest:
            whose = "" if reader.user is None else f" of {reader.user}"
            raise InvalidInput(
                f'No memory{whose} that may be shown has the concept "{found.concept}".',
                "Write one name or word as the memory has it. `memory graph status` says whether the graph is filled.",
            )
        return dataclasses.asdict(drawn(found))

    async def read(given: dict[str, Any]) -> dict[str, Any]:
        memory_id = number_of(given, "memory")
        if not -_LARGEST_ID <= memory_id <= _LARGEST_ID:
            raise InvalidInput("`memory` is no id.", "Load the page again.")
        return {"id": memory_id, "content": await reader.text(memory_id)}

    return page_routes(__package__, reads={"begin": begin}, actions={"look": look, "read": read})
