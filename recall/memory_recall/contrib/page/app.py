"""The routes of the page: which views it has, and what each of them asks the server."""

from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any

from starlette.applications import Starlette

from memory_recall.contrib.local_page.routes import Action, page_routes, text_of
from memory_recall.contrib.page.index_state import shown_facts
from memory_recall.contrib.page.judging import Judging
from memory_recall.contrib.page.trying import named_levels, try_recall
from memory_recall.search.recall import Recall
from memory_recall.search.sql.visibility import Everyone
from memory_recall.status import DatabaseFacts

_FILES = ("index.html", "page.css", "page.js", "requests.js", "recall.js", "judge.js", "index.js")


@dataclass(frozen=True, slots=True)
class Views:
    """What the page shows: tried recalls of a user's or everyone's memories, the state of the index, and judgements.

    `state` reads the state of the index anew. With `judging` None, nothing is judged.
    """

    recall: Recall
    user: str | Everyone
    state: Callable[[], Awaitable[DatabaseFacts]]
    judging: Judging | None = None


def page_app(views: Views, *, stop: Callable[[], None]) -> Starlette:
    """Return the application of the page; `stop` ends its server."""

    async def begin(_: dict[str, Any]) -> dict[str, Any]:
        levels = [asdict(level) for level in named_levels()]
        return {"judging": views.judging is not None, "whose": _whose(views.user), "levels": levels}

    async def recall(given: dict[str, Any]) -> dict[str, Any]:
        return asdict(await try_recall(views.recall, text_of(given, "text"), user=views.user))

    async def state(_: dict[str, Any]) -> dict[str, Any]:
        return {"facts": [asdict(fact) for fact in shown_facts(await views.state())]}

    async def finish(_: dict[str, Any]) -> dict[str, Any]:
        stop()
        return {}

    reads: dict[str, Action] = {"begin": begin, "state": state}
    actions: dict[str, Action] = {"recall": recall, "finish": finish}
    if views.judging is not None:
        reads["screen"] = views.judging.screen
        actions |= {"answer": views.judging.answer, "export": views.judging.export}
    return page_routes(__package__, _FILES, reads=reads, actions=actions)


def _whose(user: str | Everyone) -> str:
    if isinstance(user, str):
        return f"the memories of {user}"
    return "everybody's memories" + ("" if user.reader is None else f", as {user.reader} may find them")
