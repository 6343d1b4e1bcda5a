"""Passes the requests of the routes that compute directly to their endpoints.

The framework runs several layers of middleware and routing for each request. That takes 0.2 milliseconds of a query,
since the computation of the query before has emptied the processor's caches, and a query of twelve tokens takes 3
milliseconds to compute. The framework serves all other requests, refuses other methods, and describes all routes.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from types import MappingProxyType
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from memory_embedder.errors import EmbedderError

Refuse = Callable[[EmbedderError], Response]


class DirectRoute(APIRoute):
    """A route whose endpoint takes the request and makes the response, without FastAPI's injection and validation."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the endpoint itself."""
        return self.endpoint


class DirectApp(FastAPI):
    """A FastAPI application that serves the routes given to `serve_directly` without the framework."""

    _direct: Mapping[tuple[str, str], ASGIApp] = MappingProxyType({})

    def serve_directly(self, router: APIRouter, guard: Callable[[ASGIApp], ASGIApp], refuse: Refuse) -> None:
        """Serve the `DirectRoute`s of a router without the framework.

        The application must include the router without a prefix. `guard` puts the middleware around an endpoint.
        `refuse` makes the response to a request whose endpoint raises an `EmbedderError`.
        """
        self._direct = {
            (method, route.path): guard(_endpoint_app(route, refuse))
            for route in router.routes
            if isinstance(route, DirectRoute)
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request over ASGI."""
        direct = self._direct.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        await (direct or super().__call__)(scope, receive, send)


def _endpoint_app(route: DirectRoute, refuse: Refuse) -> ASGIApp:
    endpoint = route.endpoint

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = route  # the guard's log and metrics name it
        try:
            response = await endpoint(Request(scope, receive))
        except EmbedderError as error:
            response = refuse(error)
        await response(scope, receive, send)

    return app
