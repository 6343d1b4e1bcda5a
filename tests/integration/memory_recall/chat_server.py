"""A server with the interface of a language model's chat completions, which keeps every byte that it was sent."""

import asyncio
import json
import math
from collections.abc import Callable
from typing import Any

from tests.integration.memory_recall.fake_embedder import Answer, FakeEmbedder


def said(content: object) -> Answer:
    """What such a server answers where its model says this."""
    return 200, {}, json.dumps({"choices": [{"message": {"role": "assistant", "content": content}}]}).encode()


def likely(**tokens: float) -> Answer:
    """What such a server answers where it says how likely the first tokens of its model's answer are."""
    first = max(tokens, key=lambda token: tokens[token])
    found = [{"token": token, "logprob": math.log(share)} for token, share in tokens.items()]
    content = [found[0] | {"top_logprobs": found}]
    choice = {"message": {"role": "assistant", "content": first}, "logprobs": {"content": content}}
    return 200, {}, json.dumps({"choices": [choice]}).encode()


YES, NO = likely(Yes=0.999, No=0.001), likely(Yes=0.001, No=0.999)


class ChatServer(FakeEmbedder):
    """Answers every request with `answer`, or as `answering` says by its body.

    `arrived` is set when a request has come, and `heard` is all that came.
    """

    def __init__(self, answer: Answer | None = None) -> None:
        super().__init__()
        self.answer = answer or said("copy, snapshot")
        self.answering: Callable[[dict[str, Any]], Answer] = lambda _body: self.answer
        self.arrived = asyncio.Event()
        self.heard = b""
        self.bodies: list[dict[str, Any]] = []

    async def _answer(self, head: bytes, body: bytes) -> Answer:
        self.heard += head + body
        self.requests += 1
        chat = head.startswith(b"POST /v1/chat/completions ")
        if chat:
            self.bodies.append(json.loads(body))
        self.arrived.set()
        if self._hold_after is not None and self.requests > self._hold_after:
            await self._released.wait()
        return self.answering(json.loads(body)) if chat else self.answer
