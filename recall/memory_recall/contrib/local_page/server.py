"""Serves a page on 127.0.0.1 until it is ended."""

import asyncio
import secrets
import socket
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from memory_recall.contrib.local_page.connections import PromptProtocol
from memory_recall.contrib.local_page.guard import Guard
from memory_recall.errors import InvalidInput

_HOST = "127.0.0.1"
_GRACE_SECONDS = 2


async def serve_locally(
    page: Callable[[Callable[[], None]], ASGIApp], *, port: int, announce: Callable[[str], None]
) -> None:
    """Serve a page until it calls the function that `page` is given, or until the process is interrupted.

    If `port` is 0, any free port is used. `announce` is called with the page's address, which holds a random token,
    once the port is open.

    Raises:
        InvalidInput: the port is taken.
    """
    try:
        listener = socket.create_server((_HOST, port))
    except OSError as error:
        raise InvalidInput(
            f"Port {port} of {_HOST} cannot be opened ({type(error).__name__}).", "Give another --port, or none."
        ) from None
    with listener:
        address, token = f"{_HOST}:{listener.getsockname()[1]}", secrets.token_urlsafe(24)

        def stop() -> None:
            server.should_exit = True

        config = uvicorn.Config(
            Guard(page(stop), address=address, token=token),
            http=PromptProtocol,
            ws="none",
            lifespan="off",
            access_log=False,  # it would hold the token
            log_config=None,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
        server = uvicorn.Server(config)
        announce(f"http://{address}/{token}/")
        try:
            await server.serve(sockets=[listener])
        except asyncio.CancelledError:
            await server.shutdown(sockets=[listener])  # uvicorn does so after a signal only
            raise
