"""Lets only the page that a command serves send requests to its server, and lets it send requests nowhere else.

The server listens on 127.0.0.1, but every program of the machine, and every web site that a browser of the machine
shows, can send requests there. Therefore:

- The path begins with a random token, which the command prints for its user. Without it nothing is answered.
- The header Host must be the server's own address. A web site that lets its own name lead to 127.0.0.1 (DNS rebinding)
  sends its name there.
- A request that changes something must have the server's own Origin, which browsers set and scripts cannot change.
- The answers forbid the page to load anything from elsewhere, to send anything elsewhere and to be framed, and forbid
  the browser to keep them.
"""

import secrets

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",  # the address holds the token
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_SAFE = ("GET", "HEAD")


class Guard:
    """Wraps the application of the page. `address` is the host and the port, such as 127.0.0.1:8123.

    The application sees the path without the token.
    """

    def __init__(self, app: ASGIApp, *, address: str, token: str) -> None:
        self._app = app
        self._address = address
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request or refuse it."""

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, send_guarded)
            return
        path = "/" + scope["path"].split("/", 2)[2]
        await self._app({**scope, "path": path, "raw_path": path.encode()}, receive, send_guarded)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        headers = Headers(scope=scope)
        if headers.getlist("host") != [self._address]:
            return PlainTextResponse("This server answers at its own address only.", 421)
        if scope["method"] not in _SAFE and headers.getlist("origin") != [f"http://{self._address}"]:
            return PlainTextResponse("Only the page itself may do this.", 403)
        parts = scope["path"].split("/", 2)
        if len(parts) != 3 or not secrets.compare_digest(parts[1].encode(), self._token):
            return PlainTextResponse("There is nothing here. Open the address that the command has printed.", 404)
        return None
