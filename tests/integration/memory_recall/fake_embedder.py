"""A small HTTP embedder for tests: deterministic vectors, and any misbehaviour on demand.

It is a server on a real socket, so timeouts, refused connections and half answers are the real thing. What it was
sent is recorded, which is how tests prove what never left the database.
"""

import asyncio
import base64
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from memory_recall.indexing.usual_cosine import everyday_prompts
from tests.support.loopback_server import LoopbackServer

Answer = tuple[int, dict[str, str], bytes]
Behaviour = Callable[[list[str]], Answer | float | None]  # an answer; seconds to hang first; None to be good


def vector_of(text: str, dimensions: int) -> np.ndarray:
    """The one right vector of a text."""
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    vector = np.random.default_rng(seed).standard_normal(dimensions).astype(np.float32)
    return vector / np.linalg.norm(vector)


def _content_length(head: bytes) -> int:
    lines = head.lower().splitlines()
    return next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length")), 0)


class FakeEmbedder(LoopbackServer):
    """Serves `POST /v1/embeddings` and `GET /v1/models` on a loopback port that stays the same across restarts."""

    def __init__(self, *, dimensions: int = 8, model: str = "tiny", digest: str | None = "sha256:aa") -> None:
        super().__init__()
        self.dimensions = dimensions
        self.model = model
        self.digest = digest
        self.salt = ""  # another one makes another model of it
        self.window: int | None = None  # characters; of a longer text it says that it has not read the end
        self.unusable: Callable[[str], bool] = lambda _text: False  # texts that the model cannot embed
        self.behaviour: Behaviour = lambda _texts: None
        self.delay = 0.0
        self.received: Counter[str] = Counter()
        self.prompts: Counter[str] = Counter()  # by which workers find the usual cosine; nothing else counts them
        self.requests = 0
        self.held = asyncio.Event()
        self._hold_after: int | None = None
        self._released = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def hold_after(self, requests: int) -> None:
        """Let so many more requests through and keep every later one waiting, so that a test can act in between."""
        self._hold_after = self.requests + requests
        held_before, self._released = self._released, asyncio.Event()
        self.held = asyncio.Event()
        held_before.set()

    def release(self) -> None:
        """Let everything through."""
        self._hold_after = None
        self._released.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer every request of a connection until the client has gone."""
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            body = await reader.readexactly(_content_length(head))
            status, headers, payload = await self._answer(head, body)
            lines = [f"HTTP/1.1 {status} X", f"content-length: {len(payload)}"]
            lines += [f"{name}: {value}" for name, value in headers.items()]
            writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + payload)
            await writer.drain()

    async def _answer(self, head: bytes, body: bytes) -> Answer:
        if head.startswith(b"GET /v1/models"):
            model = {"id": self.model, "dimensions": self.dimensions, "digest": self.digest}
            return 200, {}, json.dumps({"data": [model]}).encode()
        request = json.loads(body)
        texts = request["input"]
        if asks_for_prompts(texts):
            self.prompts.update(texts)
            return good_answer([vector_of(self.salt + text, self.dimensions) for text in texts], self.digest)
        self.requests += 1
        if self._hold_after is not None and self.requests > self._hold_after:
            self.held.set()
            await self._released.wait()
        verdict = self.behaviour(texts)
        if isinstance(verdict, tuple):
            return verdict
        await asyncio.sleep(verdict if verdict is not None else self.delay)
        skipped = [place for place, text in enumerate(texts) if self.unusable(text)]
        if skipped and request.get("on_error") != "skip":
            error = {"message": "no", "type": "invalid_request_error", "code": "unusable_vector", "indexes": skipped}
            return 422, {}, json.dumps({"error": error}).encode()
        self.received.update(texts)
        vectors = [vector_of(self.salt + text, self.dimensions) for text in texts]
        truncated = {place for place, text in enumerate(texts) if self.window is not None and len(text) > self.window}
        digest = self.digest if "input_type" in request else None  # else a client of third-party ones asks
        return good_answer(vectors, digest, truncated, skipped)


def asks_for_prompts(texts: Collection[str]) -> bool:
    """Return whether a request is one of those by which a worker finds the usual cosine."""
    return set(texts) <= set(everyday_prompts())


def good_answer(
    vectors: list[Any], digest: str | None = "sha256:aa", truncated: Collection[int] = (), skipped: Collection[int] = ()
) -> Answer:
    """What a healthy embedder says.

    `truncated` has the places of the texts whose end it has not read, `skipped` of those that it cannot embed.
    """
    data: list[dict[str, Any]] = [
        {"index": index, "embedding": base64.b64encode(np.asarray(vector, dtype="<f4").tobytes()).decode()}
        for index, vector in enumerate(vectors)
    ]
    for place in truncated:
        data[place]["truncated"] = True
    usage = {"total_tokens": len(vectors), "truncated_inputs": len(truncated)}
    answer: dict[str, Any] = {
        "data": [entry for entry in data if entry["index"] not in skipped], "digest": digest, "usage": usage,
    }  # fmt: skip
    if skipped:
        answer["skipped"] = [{"index": place, "code": "unusable_vector"} for place in skipped]
    return 200, {}, json.dumps(answer).encode()
