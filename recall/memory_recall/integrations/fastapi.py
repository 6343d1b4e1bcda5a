"""A FastAPI router that serves exactly `POST /api/memories/recall`, in the memory API's own request and response form.

An API mounts it in place of its own route:

    recall = HybridRecall(pool, EmbedderClient(EMBEDDER_URL, "all-MiniLM-L6-v2"))
    app.include_router(create_recall_router(recall, current_user=lambda user=Depends(get_current_user): user.user_id))

Degrades do not show in the response, since its readers would not know what to do about them; `observe` of
`HybridRecall` sees every one.

Whatever goes wrong is answered and logged here, without a word of queries and memories. Left to the framework, a
malformed request is quoted in the answer, and an exception in the server's log and in the host's telemetry.
"""

import logging
import traceback
from collections.abc import Callable, Coroutine
from typing import Any, Literal

from fastapi import APIRouter, Depends, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field

from memory_recall.errors import DatabaseUnreachable, LockNotAvailable, MemoryIndexError
from memory_recall.search.hybrid_recall import HybridRecall
from memory_recall.search.query import MAX_LIMIT, RecalledMemory

Scope = Literal["owner", "everyone"]

_log = logging.getLogger(__name__)


class RecallRequest(BaseModel):
    """What the API's hook sends before every prompt."""

    context: str
    expanded_query: str = ""
    category: str | None = None
    sort_by: Literal["importance", "relevance", "recency"] = "importance"
    limit: int = Field(default=10, ge=1, le=MAX_LIMIT)
    is_sensitive: bool = False


class RecalledEntry(BaseModel):
    """One memory of the answer."""

    id: int
    content: str
    category: str | None
    tags: str | None
    importance: float | None
    is_sensitive: bool
    rank: float
    owner: str | None
    created_at: str | None
    updated_at: str | None
    shared_by: str | None


class RecallResponse(BaseModel):
    """The answer's envelope."""

    memories: list[RecalledEntry]


def create_recall_router(
    recall: HybridRecall,
    *,
    current_user: Callable[..., Any],
    scope: Scope = "owner",
    path: str = "/api/memories/recall",
) -> APIRouter:
    """The router. `current_user` is a FastAPI dependency that yields the caller's user id.

    `scope="everyone"` searches all memories, as an API does whose memories are shared; what belongs to another user is
    then marked by `shared_by`. The default searches the caller's own.
    """
    router = APIRouter(route_class=_QuietRoute)

    @router.post(path, summary="Recall memories by words and by meaning")
    async def recall_memories(body: RecallRequest, user: str = Depends(current_user)) -> RecallResponse:
        try:
            result = await recall.recall(
                f"{body.context} {body.expanded_query}",
                limit=body.limit,
                sort_by=body.sort_by,
                category=body.category or None,
                user_id=user if scope == "owner" else None,
                sensitive=body.is_sensitive,
            )
            return RecallResponse(memories=[_entry(memory, user) for memory in result.memories])
        except Exception as error:  # noqa: BLE001  (any of them may quote a text)
            refusal = _refusal(error)
        raise refusal  # after the except block, or the error would hang on it as its context

    return router


class _QuietRoute(APIRoute):
    """Says what is wrong with a request as the framework does, less the input."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_quietly(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestValidationError as error:
                problems = [{name: problem[name] for name in ("type", "loc", "msg")} for problem in error.errors()]
            raise HTTPException(422, detail=problems)  # after the except block, as above

        return handle_quietly


def _refusal(error: Exception) -> HTTPException:
    """What the caller is told about a recall that failed; the cause goes to the log."""
    if isinstance(error, (DatabaseUnreachable, LockNotAvailable)):
        return HTTPException(503, detail=error.reason, headers={"Retry-After": "1"})
    if isinstance(error, MemoryIndexError):
        _log.error("A recall failed: %s", error)
        return HTTPException(500, detail=error.reason)
    frames = "".join(traceback.format_tb(error.__traceback__))  # places and source lines, no values
    _log.error("A recall failed with %s:\n%s", type(error).__name__, frames)
    return HTTPException(500, detail=MemoryIndexError.reason)


def _entry(memory: RecalledMemory, user: str) -> RecalledEntry:
    return RecalledEntry(
        id=memory.id,
        content=memory.content,
        category=memory.category,
        tags=memory.tags,
        importance=memory.importance,
        is_sensitive=memory.is_sensitive,
        rank=memory.rank,
        owner=memory.owner,
        created_at=memory.created_at.isoformat() if memory.created_at else None,
        updated_at=memory.updated_at.isoformat() if memory.updated_at else None,
        shared_by=None if memory.owner == user else memory.owner,
    )
