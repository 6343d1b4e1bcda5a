"""A proxy between one operator and the API server, which counts the operator's calls and makes one of them fail.

The proxy listens without TLS, and only inside the cluster's own network. It connects to the API server with TLS, as the
user of the kubeconfig.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import aiohttp
from aiohttp import web

from tests.support.cluster.faults.points import REASONS, Fault, Recorder, describe

_HANGING_SECONDS = 120.0  # longer than any client waits
_HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "content-encoding", "host", "keep-alive"}
_ACCEPTED = {"accept", "content-type", "user-agent"}


class FaultProxy:
    """Forwards the calls of one operator to the API server, and makes the call fail that `recorder` selects.

    Each life of a MemoryIndex, from its creation to its deletion, has a recorder of its own. `kill` is called to kill
    the operator's process.
    """

    def __init__(
        self, session: aiohttp.ClientSession, namespaces: Sequence[str], kill: Callable[[], Awaitable[None]]
    ) -> None:
        self._session = session
        self._namespaces = namespaces
        self._kill = kill
        self._runner: web.AppRunner | None = None
        self.recorder = Recorder()
        self.port = 0

    async def start(self) -> None:
        """Listen on a free port of the loopback interface or, after a stop, on the same port as before."""
        app = web.Application(client_max_size=1 << 24)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Close all connections, and accept no new ones."""
        if self._runner:
            await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        watch = request.query.get("watch") in {"true", "1"}
        what = describe(request.method, request.path, watch=watch, namespaces=self._namespaces)
        fault = None if "/leases/" in request.path else self.recorder.count(what)
        if fault is Fault.TIME_OUT:
            await asyncio.sleep(_HANGING_SECONDS)
            return web.Response(status=504)
        if fault is Fault.KILL:
            await self._carry_out_and_kill(request)
            return web.Response(status=502)
        if fault is not None:
            return _refusal(fault)
        try:
            return await self._forward(request)
        except (aiohttp.ClientError, TimeoutError):
            return web.Response(status=502)

    async def _carry_out_and_kill(self, request: web.Request) -> None:
        """Let the API server carry out the request, and kill the operator before it receives the answer."""
        with suppress(aiohttp.ClientError, TimeoutError):
            async with self._request(request, await request.read()):
                pass
        await self._kill()

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        async with self._request(request, await request.read()) as answer:
            headers = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP_BY_HOP}
            response = web.StreamResponse(status=answer.status, headers=headers)
            await response.prepare(request)
            async for part in answer.content.iter_any():
                await response.write(part)
            await response.write_eof()
            return response

    def _request(self, request: web.Request, body: bytes) -> "aiohttp.client._RequestContextManager":
        headers = {name: value for name, value in request.headers.items() if name.lower() in _ACCEPTED}
        return self._session.request(request.method, request.path_qs, data=body or None, headers=headers)


def _refusal(fault: Fault) -> web.Response:
    """Return an error answer in the form of the API server, with the HTTP status of `fault`."""
    code = int(fault)
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": "an injected fault",
        "reason": REASONS[fault],
        "code": code,
    }
    headers = {"Retry-After": "1"} if fault is Fault.TOO_MANY else {}
    return web.Response(status=code, text=json.dumps(status), content_type="application/json", headers=headers)
