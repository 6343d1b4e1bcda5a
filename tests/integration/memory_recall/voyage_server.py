"""A server with the hosted provider's interface that keeps every byte that it was sent."""

import json
from typing import Any

from memory_recall.embedding.canary import CANARY_DOCUMENTS, CANARY_QUERY
from tests.integration.memory_recall.fake_embedder import Answer, FakeEmbedder, asks_for_prompts, good_answer, vector_of


class VoyageServer(FakeEmbedder):
    """Answers as the provider does; `heard` is all that arrived, heads and bodies.

    Where `accepted_key` is set, a request with any other key is refused. Requests with the fixed texts by which a model
    is known are always answered, and are not among the `bodies`. Another `identity` makes another model of it.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(model="voyage-test", digest=None, **options)
        self.heard = b""
        self.bodies: list[dict[str, Any]] = []
        self.accepted_key: str | None = None
        self.identity = ""

    async def _answer(self, head: bytes, body: bytes) -> Answer:
        self.heard += head + body
        if not head.startswith(b"POST /v1/embeddings "):
            return 404, {}, b"{}"
        if self.accepted_key is not None and f"Bearer {self.accepted_key}\r\n".encode() not in head:
            return 401, {}, json.dumps({"detail": "Provided API key is invalid."}).encode()
        request = json.loads(body)
        if {*request["input"]} <= {*CANARY_DOCUMENTS, CANARY_QUERY}:
            return good_answer([vector_of(self.identity + text, self.dimensions) for text in request["input"]], None)
        if not asks_for_prompts(request["input"]):
            self.bodies.append(request)
        return await super()._answer(head, body)
