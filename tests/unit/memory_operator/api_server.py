"""An API server on a local port that gives the answers of a test and keeps the requests that it got."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from kubernetes.aio.client import ApiClient, Configuration

from memory_operator.clients.kube import Kube


@dataclass(frozen=True)
class Sent:
    """One request, and its body as JSON."""

    method: str
    path: str
    query: dict[str, str]
    content_type: str
    accept: str
    body: Any


@dataclass(frozen=True)
class Answer:
    """An HTTP answer: text, or anything else as JSON."""

    code: int
    body: Any = None


Handler = Callable[[Sent], Answer]
Connect = Callable[[Handler | Answer], Awaitable[tuple[Kube, list[Sent]]]]


def failure(code: int, message: str) -> Answer:
    """Return the answer that the API server gives to a request that fails."""
    return Answer(code, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code})


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Start a server and return a client of it, and the list to which each request is added."""
    async with AsyncExitStack() as stack:

        async def connected(handle: Handler | Answer) -> tuple[Kube, list[Sent]]:
            sent: list[Sent] = []

            async def serve(request: web.Request) -> web.Response:
                body = await request.read()
                sent.append(
                    Sent(
                        request.method, request.path, dict(request.query), request.content_type,
                        request.headers.get("Accept", ""), json.loads(body) if body else None,
                    )
                )  # fmt: skip
                answer = handle if isinstance(handle, Answer) else handle(sent[-1])
                if isinstance(answer.body, str):
                    return web.Response(status=answer.code, text=answer.body)
                return web.json_response(answer.body, status=answer.code)

            application = web.Application()
            application.router.add_route("*", "/{path:.*}", serve)
            server = TestServer(application)
            await stack.enter_async_context(server)
            client = await stack.enter_async_context(ApiClient(Configuration(host=str(server.make_url("")))))
            return Kube(client, lambda *_: None, lambda _: None), sent

        yield connected
