"""What surrounds every request: an id, one log line, one count, and a net under everything that may be raised.

Plain ASGI, since the framework's own error middleware re-raises to the server, whose log would show the exception's
message. The route label and the logged path come from the route table, never from the URL: a caller may put anything
there.
"""

from __future__ import annotations

import re
import secrets
import time

import orjson
import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memory_embedder.errors import EmbedderError, ErrorKind
from memory_embedder.telemetry.metrics import Metrics
from memory_embedder.telemetry.tracing import Tracing

_REQUEST_ID = re.compile(rb"^[A-Za-z0-9._-]{1,64}$")
_QUIET_ROUTES = frozenset({"/healthz", "/readyz", "/metrics"})


class RequestGuard:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, metrics: Metrics, tracing: Tracing) -> None:
        self._app = app
        self._metrics = metrics
        self._tracing = tracing
        self._logger = structlog.get_logger("memory_embedder.http")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        started = time.monotonic()
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), (b"x-request-id", request_id)]
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
                    await _send_error(
                        send_with_id,
                        EmbedderError(
                            ErrorKind.INTERNAL, "An unexpected failure; quote the x-request-id to the operator."
                        ),
                    )
            finally:
                self._tracing.describe({"request_id": request_id.decode()})
                self._note(scope, status or ErrorKind.CLIENT_GONE.status, time.monotonic() - started)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        route = _route(scope)
        self._tracing.describe({"http.route": route, "http.response.status_code": status})
        self._metrics.requests.labels(route=route, status=str(status)).inc()
        log = self._logger.debug if route in _QUIET_ROUTES else self._logger.info
        log("Request", route=route, status=status, milliseconds=round(seconds * 1000, 2))


async def _send_error(send: Send, error: EmbedderError) -> None:
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": error.kind.status, "headers": headers})
    await send({"type": "http.response.body", "body": orjson.dumps(error.envelope())})


def _request_id(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.match(value):
            return bytes(value)
    return secrets.token_hex(8).encode()


def _route(scope: Scope) -> str:
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else "unmatched"
