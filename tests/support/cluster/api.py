"""Sends requests to the Kubernetes API server without kubectl, whose start would take longer than a request."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from devcluster.cluster import Cluster
from devcluster.errors import DevclusterError

Object = dict[str, Any]
INDEXES = "/apis/memory-index.dev/v1alpha1"
_PATCHES = {"merge": "application/merge-patch+json", "json": "application/json-patch+json"}
_CONCURRENT_REQUESTS = 32
_START_SECONDS = 20.0
_REQUEST_SECONDS = 60.0
_WATCH_LINE_BYTES = 1 << 20


class ApiError(Exception):
    """The API server refused a request; `status` is the HTTP status of its answer."""

    def __init__(self, action: str, status: int, message: str) -> None:
        super().__init__(f"{action}: {status} {message}")
        self.status = status


class Api:
    """Sends requests through `kubectl proxy`, which authenticates as the kubeconfig's user."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def get(self, path: str) -> Object:
        """Return the object or the list of objects at `path`, as the API server returns it."""
        return dict(json.loads(await self._request("GET", path)))

    async def text(self, path: str) -> str:
        """Return the answer to a GET request as text, for pages that are not JSON, such as metrics."""
        return (await self._request("GET", path)).decode()

    async def create(self, path: str, body: Object) -> Object:
        """Create an object in the collection at `path`."""
        return dict(json.loads(await self._request("POST", path, body)))

    async def patch(self, path: str, body: Any, kind: str = "merge") -> Object:
        """Change an object by a merge patch or, with `kind` "json", by a JSON patch."""
        return dict(json.loads(await self._request("PATCH", path, body, _PATCHES[kind])))

    async def delete(self, path: str, *, grace_seconds: int | None = None) -> None:
        """Delete an object; do nothing if it does not exist."""
        options = {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
        try:
            await self._request("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", **options})
        except ApiError as error:
            if error.status != 404:
                raise

    async def watch(self, path: str) -> AsyncIterator[tuple[str, Object]]:
        """Yield the type and the object of each event until the server ends the watch; `path` may contain a query."""
        separator = "&" if "?" in path else "?"
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.get(f"{path}{separator}watch=true", timeout=timeout) as answer:
            await _require_success(answer, f"watching {path}")
            async for line in answer.content:
                event = json.loads(line)
                yield event["type"], event["object"]

    async def _request(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> bytes:
        data = None if body is None else json.dumps(body)
        headers = {} if body is None else {"Content-Type": content_type}
        async with self._session.request(method, path, data=data, headers=headers) as answer:
            await _require_success(answer, f"{method} {path}")
            return await answer.read()


async def _require_success(answer: aiohttp.ClientResponse, action: str) -> None:
    if answer.status >= 400:
        raise ApiError(action, answer.status, (await answer.text())[:500])


@asynccontextmanager
async def api_of(cluster: Cluster) -> AsyncIterator[Api]:
    """Yield a client of the cluster's API server, and close it after the block."""
    command = cluster.kubectl_command("proxy", "--port=0")
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        connector = aiohttp.TCPConnector(limit=_CONCURRENT_REQUESTS)
        timeout = aiohttp.ClientTimeout(total=_REQUEST_SECONDS)
        async with aiohttp.ClientSession(
            await _address(process), connector=connector, timeout=timeout, read_bufsize=_WATCH_LINE_BYTES
        ) as session:
            yield Api(session)
    finally:
        process.terminate()
        await process.wait()


async def _address(process: asyncio.subprocess.Process) -> str:
    """Wait until `kubectl proxy` has printed the address at which it listens, and return that address."""
    if process.stdout is None:
        raise DevclusterError("kubectl proxy has no output")
    said = await asyncio.wait_for(process.stdout.readline(), _START_SECONDS)
    found = re.search(r"Starting to serve on (\S+)", said.decode())
    if found is None:
        raise DevclusterError("kubectl proxy did not start", detail=said.decode())
    return f"http://{found[1]}"
