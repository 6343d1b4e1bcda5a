"""Bounds the connections to a page, so that none keeps its user out.

Any web site that a browser of the machine shows can open connections to the page's port and send half of a request on
each. uvicorn waits for the rest without a limit. Here the head of a request must come within a few seconds. When all
connections are taken, a new connection replaces the one that has waited longest for its client, so the user's browser,
which sends its request at once, is always answered.
"""

import asyncio
from typing import cast

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

MOST_CONNECTIONS = 32
_HEAD_SECONDS = 10.0


class PromptProtocol(H11Protocol):
    """One connection, which is closed if its client does not send the head of a request in time."""

    _head_timer: asyncio.TimerHandle | None = None

    @property
    def answering(self) -> bool:
        """Whether a request has come and its answer is not complete."""
        cycle: RequestResponseCycle | None = self.cycle  # None until the first request
        return cycle is not None and not cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as the base class has it
        """Accept a connection. If there are now too many, close the one that has waited longest for its client."""
        super().connection_made(transport)
        self._await_head()
        if len(self.connections) > MOST_CONNECTIONS:
            waiting = [one for one in cast("set[PromptProtocol]", self.connections) if one._head_timer is not None]
            min(waiting, key=lambda one: one._head_timer.when() if one._head_timer else 0.0).drop()

    def data_received(self, data: bytes) -> None:
        """Pass received bytes to the parser."""
        super().data_received(data)
        self._await_head()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a closed connection."""
        self._stop_timer()
        super().connection_lost(exc)

    def drop(self) -> None:
        """Close the connection at once."""
        self._stop_timer()
        self.connections.discard(self)
        self.transport.abort()

    def _await_head(self) -> None:
        if self.answering:
            self._stop_timer()
        elif self._head_timer is None and not self.transport.is_closing():
            self._head_timer = self.loop.call_later(_HEAD_SECONDS, self.drop)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
