"""Checks the API key of each request, gives the request an id, logs it, and counts it in the metrics.

`RequestGuard` is plain ASGI middleware, because FastAPI's own error middleware raises an unexpected exception again,
and the server would log the exception's message. Metrics and logs name the route from the route table and never the
URL, which may hold a caller's text.
"""

import hashlib
import hmac
import re
import secrets
import time
from pathlib import Path

import structlog
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memory_embedder.errors import EmbedderError, ErrorKind
from memory_embedder.scheduling.service import EmbeddingService, State
from memory_embedder.telemetry.metrics import UNMATCHED

_REQUEST_ID = re.compile(rb"^[A-Za-z0-9._-]{1,64}$")
_MOST_KEYS = 256  # each is compared with that of every request
_QUIET_ROUTES = frozenset({"/healthz", "/readyz", "/metrics"})


class ApiKeys:
    """The optional API keys, one a line of a file, compared in constant time. The file is read again when it changes.

    With several keys callers are told apart, and a key is replaced without a moment at which neither is accepted. The
    log says once if there is no key in the file, since callers then hear only that theirs is wrong.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._modified = -1
        self._keys: tuple[bytes, ...] = ()
        self._missing = False
        self._logger = structlog.get_logger("memory_embedder.http")

    def check(self, header: str | None) -> bytes | None:
        """Check the value of an `Authorization` header.

        Return the SHA-256 digest of the key, or None if no key is required.

        Raises:
            EmbedderError: the header is not `Bearer` with one of the keys, or their file cannot be read.
        """
        if self._path is None:
            return None
        keys = self._current(self._path)
        scheme, _, value = (header or "").partition(" ")
        given = value.encode("latin-1")  # the bytes that came: fields of a head are decoded so
        equal = [hmac.compare_digest(given, key) for key in keys]  # all of them, so that the time tells nothing
        if scheme.lower() != "bearer" or not any(equal):
            raise EmbedderError(
                ErrorKind.UNAUTHORIZED, "The API key is missing or wrong; send it as 'Authorization: Bearer <key>'."
            )
        return hashlib.sha256(given).digest()

    def _current(self, path: Path) -> tuple[bytes, ...]:
        keys = self._read(path)
        if self._missing is not (missing := not keys):
            self._missing = missing
            if missing:
                self._logger.error("The file of the API key cannot be read or is empty; every caller is refused")
        return keys

    def _read(self, path: Path) -> tuple[bytes, ...]:
        try:
            modified = path.stat().st_mtime_ns
            if modified != self._modified:
                lines = [line.strip() for line in path.read_bytes().splitlines()]
                found = [line for line in lines if line]
                if len(found) > _MOST_KEYS:
                    self._logger.error("The file has too many API keys; the last ones are refused", most=_MOST_KEYS)
                self._keys = tuple(found[:_MOST_KEYS])
                self._modified = modified
        except OSError:
            return ()  # keys that cannot be read admit nobody
        return self._keys


class RequestGuard:
    """ASGI middleware around a whole application. It answers an unexpected exception with 500, without the message.

    During a shutdown each response closes its connection, so that the client's next request reaches another pod.
    """

    def __init__(self, app: ASGIApp, service: EmbeddingService) -> None:
        self._app = app
        self._service = service
        self._metrics = service.metrics
        self._tracing = service.tracing
        self._logger = structlog.get_logger("memory_embedder.http")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request to the application, then log and count it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if len(path := scope["path"]) > 1:
            scope = {**scope, "path": path.removesuffix("/")}  # clients join a base address and a path as they like
        request_id = _request_id(scope)
        started = time.monotonic()
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                closing = [(b"connection", b"close")] if self._service.state is State.TERMINATING else []
                message["headers"] = [*message.get("headers", []), (b"x-request-id", request_id), *closing]
            await send(message)

        with (
            structlog.contextvars.bound_contextvars(request_id=request_id.decode()),
            self._tracing.request(scope["headers"]),
        ):
            try:
                await self._app(scope, receive, send_with_id)
            except Exception:
                self._logger.exception("Unexpected failure")
                if status == 0:
                    error = EmbedderError(
                        ErrorKind.INTERNAL, "An unexpected failure; quote the x-request-id to the operator."
                    )
                    answer = JSONResponse(error.envelope(), status_code=error.kind.status)
                    await answer(scope, receive, send_with_id)
            finally:
                self._tracing.describe({"request_id": request_id.decode()})
                self._record(scope, status or ErrorKind.CLIENT_GONE.status, time.monotonic() - started)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        route = _route(scope)
        self._tracing.describe({"http.route": route, "http.response.status_code": status})
        self._metrics.requests.labels(route=route, status=str(status)).inc()
        log = self._logger.debug if route in _QUIET_ROUTES else self._logger.info
        log("Request", route=route, status=status, milliseconds=round(seconds * 1000, 2))


def _request_id(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.match(value):
            return bytes(value)
    return secrets.token_hex(8).encode()


def _route(scope: Scope) -> str:
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else UNMATCHED
