"""A server with OpenAI's interface that is none of ours: it names no file, knows no prefix and truncates nothing."""

import json
from collections.abc import Callable
from typing import Any

from tests.integration.memory_recall.fake_embedder import Answer, FakeEmbedder, vector_of

_KNOWN = {"model", "input"}


class OpenAiServer(FakeEmbedder):
    """Answers as llama-server does, and refuses requests with anything that OpenAI's interface does not have.

    `most_characters` is the length of the longest text that it takes; a longer one is answered as an error of the
    server, with the whole request.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.served_as = "org/model-GGUF"
        self.most_characters = 1000
        self.seen: Callable[[list[str]], None] = lambda _texts: None  # is told of each request before the answer

    async def _answer(self, head: bytes, body: bytes) -> Answer:
        if head.startswith(b"GET /v1/models"):
            return 200, {}, json.dumps({"object": "list", "data": [{"id": self.served_as, "object": "model"}]}).encode()
        request = json.loads(body)
        if request.get("model") != self.served_as or set(request) != _KNOWN:
            return 400, {}, json.dumps({"error": {"message": "unknown", "type": "invalid_request_error"}}).encode()
        texts = request["input"]
        self.requests += 1
        self.seen(texts)
        if any(len(text) > self.most_characters for text in texts):
            return 500, {}, json.dumps({"error": {"message": "input is too large to process", "code": 500}}).encode()
        self.received.update(texts)
        data = [
            {
                "index": index,
                "embedding": (3 * vector_of(self.salt + text, self.dimensions)).tolist(),
                "object": "embedding",
            }
            for index, text in enumerate(texts)
        ]
        answer = {"object": "list", "model": self.served_as, "data": data, "usage": {"total_tokens": len(texts)}}
        return 200, {}, json.dumps(answer).encode()
