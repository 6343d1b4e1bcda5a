"""A client of the memory API: its REST routes, and its MCP tool over streamable HTTP."""

from collections.abc import Mapping
from typing import Any

import httpx
import orjson

from tests.client.memories import KEYS, USER

Memories = list[dict[str, Any]]
LONGEST_SECONDS = 10.0  # seconds; longer than a request may take, so that a longer one is measured and not cut


class ApiError(Exception):
    """The API answered with an error, or not at all; the message holds no text of memories."""


class MemoryApi:
    """The memory API as one of its users sees it. It must be closed."""

    def __init__(self, url: str, user: str = USER) -> None:
        self._http = httpx.AsyncClient(
            base_url=url, headers={"Authorization": f"Bearer {KEYS[user]}"}, timeout=httpx.Timeout(LONGEST_SECONDS)
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def store(self, content: str, *, sensitive: bool = False) -> int:
        """Store a memory and return its id."""
        body = {"content": content, "category": "facts", "force_sensitive": sensitive}
        return int((await self._post("/api/memories", body))["id"])

    async def link(self, source: int, target: int, kind: str) -> None:
        """Link a memory to another one."""
        await self._post(f"/api/memories/{source}/links", {"target_id": target, "link_type": kind})

    async def recall(self, question: str, **options: Any) -> Memories:
        """Recall through the REST route."""
        return list((await self._post("/api/memories/recall", {"context": question, **options}))["memories"])

    async def recall_by_tool(self, question: str) -> Memories:
        """Recall through the MCP tool `memory_recall`."""
        call = {"name": "memory_recall", "arguments": {"context": question}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        answer = await self._post("/mcp/mcp", body, accept="application/json, text/event-stream")
        result = answer.get("result", {})
        if "result" not in answer or result.get("isError"):
            raise ApiError("the tool memory_recall failed")
        return list(orjson.loads(result["content"][0]["text"])["memories"])

    async def _post(self, path: str, body: Mapping[str, Any], accept: str = "application/json") -> dict[str, Any]:
        try:
            response = await self._http.post(path, json=body, headers={"Accept": accept})
        except httpx.HTTPError as error:
            raise ApiError(f"{path}: {type(error).__name__}") from None
        if response.status_code != httpx.codes.OK:
            raise ApiError(f"{path}: status {response.status_code}")
        return dict(response.json())
