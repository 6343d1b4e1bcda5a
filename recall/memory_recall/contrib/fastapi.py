"""A FastAPI router for memory servers: `POST /api/memories/recall` in the server's own request and response form.

A memory server mounts the router in place of its own route:

    recall = HybridRecall(pool, EmbedderClient(EMBEDDER_URL, "all-MiniLM-L6-v2"))
    app.include_router(create_recall_router(recall, current_user=lambda user=Depends(get_current_user): user.user_id))

The response does not say whether the recall was degraded, because the client could do nothing about that. The server
can learn it from the function `observe` of `RecallOptions`, which is called with every result.

This module answers every failure itself, and neither the response nor the log quotes a query or a memory. FastAPI
itself would quote a malformed request in the response, and the text of an exception in the server's log and telemetry.
"""

import logging
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import fields
from datetime import datetime
from typing import Annotated, Any, Literal, get_type_hints
from uuid import UUID

from pydantic import BaseModel, Field, create_model, field_serializer, model_validator

from memory_recall.errors import (
    DatabaseUnreachable,
    InvalidInput,
    LockNotAvailable,
    MemoryIndexError,
    importing_extra,
)
from memory_recall.schema.columns.keys import MemoryId
from memory_recall.search.fusion import SortBy
from memory_recall.search.query import MAX_LIMIT, RecallQuery
from memory_recall.search.recall import Recall
from memory_recall.search.relevance import Level, RelevanceBasis
from memory_recall.search.result import MEMORY_FIELDS, RecalledMemory, RecallResult
from memory_recall.search.sql.filters import FILTER_TYPES, NO_FILTERS, Filters
from memory_recall.search.sql.visibility import Everyone

with importing_extra("api", "create_recall_router"):
    from fastapi import APIRouter, Depends, HTTPException, Request, Response
    from fastapi.exceptions import RequestValidationError
    from fastapi.routing import APIRoute

Scope = Literal["owner", "everyone"]

_log = logging.getLogger(__name__)

_FILTERS: dict[str, Any] = {name: (kind, getattr(NO_FILTERS, name)) for name, kind in FILTER_TYPES.items()}
_MEMORY: dict[str, Any] = {name: (get_type_hints(RecalledMemory)[name], ...) for name in MEMORY_FIELDS}
_FilterFields: Any = create_model("_FilterFields", **_FILTERS)
_MemoryFields: Any = create_model("_MemoryFields", **_MEMORY)


class RecallRequest(_FilterFields):  # type: ignore[misc]  # the filters of `Filters` are listed there alone
    """The body of a recall request, in the form that clients of the memory server send before every prompt.

    Names that nobody knows are ignored. A name of `RecallQuery` that has no effect here is refused, because whoever
    sends `sensitive` relies on it.
    """

    context: str
    expanded_query: str = ""
    sort_by: SortBy = SortBy.RELEVANCE
    limit: int = Field(default=30, ge=1, le=MAX_LIMIT)
    is_sensitive: bool = False
    expand: bool = False
    least_relevance: Level | Annotated[float, Field(ge=0, le=1)] = "everything"
    max_tokens: int | None = Field(default=None, ge=1)
    distinct: bool = False

    @model_validator(mode="before")
    @classmethod
    def _refuse_what_has_no_effect(cls, given: object) -> object:
        if isinstance(given, dict) and (without_effect := sorted(_NOT_OF_THE_BODY & given.keys())):
            raise ValueError(
                f"{', '.join(without_effect)}: of no effect in the body of a recall. A sensitive query is marked with "
                "is_sensitive; filters are fields of the body."
            )
        return given

    def query(self, user_id: str | Everyone) -> RecallQuery:
        """Return the query over the memories of one user or of everyone. A filter that is an empty text is ignored."""
        given = {name: getattr(self, name) for name in _FILTERS}
        filters: dict[str, Any] = {name: None if value == "" else value for name, value in given.items()}
        return RecallQuery(
            f"{self.context} {self.expanded_query}",
            user_id=user_id,
            filters=Filters(**filters),
            limit=self.limit,
            sort_by=self.sort_by,
            sensitive=self.is_sensitive,
            expand=self.expand,
            least_relevance=self.least_relevance,
            max_tokens=self.max_tokens,
            distinct=self.distinct,
        )


_NOT_OF_THE_BODY = {one.name for one in fields(RecallQuery)} - {"text", "user_id"} - RecallRequest.model_fields.keys()


class RecalledEntry(_MemoryFields):  # type: ignore[misc]  # the fields of `RecalledMemory` are listed there alone
    """One memory in the response. `shared_by` is the owner, or None if the caller is the owner.

    Only an entry that the concept graph reached has `graph_score`, only one of a superseded memory `superseded_by`, and
    only one whose relevance was asked for and is known `relevance`.
    """

    shared_by: str | None
    graph_score: float | None = None
    superseded_by: MemoryId | None = None
    relevance: float | None = None

    @field_serializer("created_at", "updated_at")
    def _as_text(self, moment: datetime | None) -> str | None:
        return moment.isoformat() if moment else None


class RecallResponse(BaseModel):
    """The body of the response.

    If relevance was asked for, `held_back` is how many memories of the page were less relevant than demanded, and
    `relevance_basis` what relevance was computed from, or why it was not. If `max_tokens` was given, `left_out` is how
    many memories did not fit.
    """

    memories: list[RecalledEntry]
    held_back: int | None = None
    relevance_basis: RelevanceBasis | None = None
    left_out: int | None = None


def create_recall_router(
    recall: Recall,
    *,
    current_user: Callable[..., Any],
    scope: Scope = "owner",
    path: str = "/api/memories/recall",
) -> APIRouter:
    """Make the router. `current_user` is a FastAPI dependency that yields the caller's user id (text, integer, UUID).

    If the dependency yields no user id (None or an empty text, for instance), the answer is 401, so that no memories
    are searched for an unknown caller. By default the caller's own memories are searched. `scope="everyone"` searches
    the memories of all users, for a server whose users share them; `shared_by` then names the owner of a memory that is
    not the caller's, and sensitive memories of other users are not found.
    """
    router = APIRouter(route_class=_QuietRoute)

    @router.post(path, summary="Recall memories by words and by meaning", response_model_exclude_unset=True)
    async def recall_memories(body: RecallRequest, identity: object = Depends(current_user)) -> RecallResponse:
        user = _authenticated(identity)
        try:
            result = await recall.recall(body.query(user if scope == "owner" else Everyone(reader=user)))
            return _response(result, body)
        except Exception as error:  # noqa: BLE001  (any of them may quote a text)
            refusal = _refusal(error)
        raise refusal  # after the except block, or the error would hang on it as its context

    return router


class _QuietRoute(APIRoute):
    """A route whose answer to a malformed request names the errors as FastAPI does, but does not quote the request."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_quietly(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestValidationError as error:
                problems = [{name: problem[name] for name in ("type", "loc", "msg")} for problem in error.errors()]
            raise HTTPException(422, detail=problems)  # after the except block, as above

        return handle_quietly


def _authenticated(identity: object) -> str:
    """Return the user's id, which is what the dependency `current_user` has yielded.

    Raises:
        HTTPException: what was yielded is no user id; the status is 401.
    """
    if isinstance(identity, (int, UUID)) and not isinstance(identity, bool):
        return str(identity)
    if isinstance(identity, str) and identity.strip():
        return identity
    raise HTTPException(401, detail="Unauthenticated", headers={"WWW-Authenticate": "Bearer"})


def _refusal(error: Exception) -> HTTPException:
    """Return the HTTP error that answers a failed recall. Errors with status 500 are also logged."""
    if isinstance(error, InvalidInput):
        return HTTPException(422, detail=[{"type": "invalid_input", "loc": ["body"], "msg": error.message}])
    if isinstance(error, (DatabaseUnreachable, LockNotAvailable)):
        return HTTPException(503, detail=error.reason, headers={"Retry-After": "1"})
    if isinstance(error, MemoryIndexError):
        _log.error("A recall failed: %s", error)
        return HTTPException(500, detail=error.reason)
    frames = "".join(traceback.format_tb(error.__traceback__))  # places and source lines, no values
    _log.error("A recall failed with %s:\n%s", type(error).__name__, frames)
    return HTTPException(500, detail=MemoryIndexError.reason)


def _response(result: RecallResult, body: RecallRequest) -> RecallResponse:
    """Return the response, which has only those fields beside the memories that the request asks for."""
    response = RecallResponse(memories=[_entry(memory, result.reader) for memory in result.memories])
    if result.relevance_basis is not RelevanceBasis.NOT_ASKED:
        response.held_back, response.relevance_basis = result.held_back, result.relevance_basis
    if body.max_tokens is not None:
        response.left_out = result.left_out
    return response


def _entry(memory: RecalledMemory, reader: str | None) -> RecalledEntry:
    entry = {name: getattr(memory, name) for name in MEMORY_FIELDS}
    if memory.evidence.graph_score is not None:
        entry["graph_score"] = memory.evidence.graph_score
    if memory.superseded_by is not None:
        entry["superseded_by"] = memory.superseded_by
    if memory.relevance is not None:
        entry["relevance"] = memory.relevance
    return RecalledEntry(**entry, shared_by=None if memory.owner == reader else memory.owner)
