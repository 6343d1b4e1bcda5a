"""Writes the JSON of answers, a large answer in pieces, so that other requests are served meanwhile.

Vectors are several times as large in JSON as in memory, and writing two thousand of them takes a tenth of a second,
during which no other request would be served. Therefore each piece is written only after the caller has received the
piece before, and other requests are served in between. A caller that speaks HTTP/1.0 has to be told the length first.
The pieces are then written twice, since all of them together take several times the memory that is counted.
"""

import asyncio
import base64
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from memory_embedder.scheduling.service import Embedded

_VECTORS = 32  # of one piece, which takes about a millisecond


class HeldAnswer(Response):
    """A JSON response; `held` is the request's share of memory, released after sending."""

    media_type = "application/json"

    def __init__(self, body: bytes | None, headers: Mapping[str, str] | None = None) -> None:
        self.held = ExitStack()
        super().__init__(body, headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response over ASGI."""
        with self.held:
            await super().__call__(scope, receive, send)


class EmbeddingAnswer(HeldAnswer):
    """The response to one embedding request."""

    def __init__(self, result: Embedded, model: str, digest: str, *, as_base64: bool) -> None:
        self._pieces = partial(write_pieces, result, model, digest, as_base64=as_base64)
        self._large = len(result.vectors) > _VECTORS
        super().__init__(None if self._large else b"".join(self._pieces()))
        if self._large:
            del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response over ASGI."""
        if not self._large:
            await super().__call__(scope, receive, send)
            return
        with self.held:
            headers = self.raw_headers
            if scope.get("http_version") == "1.0":  # knows no pieces, only a length
                headers = [*headers, (b"content-length", str(await self._length()).encode())]
            await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
            for piece in self._pieces():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                await asyncio.sleep(0)
            await send({"type": "http.response.body", "body": b""})

    async def _length(self) -> int:
        length = 0
        for piece in self._pieces():
            length += len(piece)
            await asyncio.sleep(0)
        return length


def write_pieces(result: Embedded, model: str, digest: str, *, as_base64: bool) -> Iterator[bytes]:
    """Yield the JSON body of an answer in pieces; `digest` is that of the model's file."""
    vectors = result.vectors.astype("<f4", copy=False)
    places = [place for place in range(len(vectors) + len(result.skipped)) if place not in result.skipped]
    opening = b'{"object":"list","data":['
    for start in range(0, len(vectors), _VECTORS):
        rows = zip(places[start : start + _VECTORS], vectors[start : start + _VECTORS], strict=True)
        items = [
            {
                "object": "embedding",
                "index": place,
                "embedding": base64.b64encode(row.tobytes()).decode() if as_base64 else row,
                **({"truncated": True} if place in result.truncated else {}),
            }
            for place, row in rows
        ]
        yield opening + orjson.dumps(items, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1]
        opening = b","
    usage = {
        "prompt_tokens": result.tokens,
        "total_tokens": result.tokens,
        "truncated_inputs": len(result.truncated),
    }
    skipped = [{"index": place, "code": kind.code} for place, kind in sorted(result.skipped.items())]
    rest = {"model": model, "digest": digest, **({"skipped": skipped} if skipped else {}), "usage": usage}
    yield (b"]," if len(vectors) else opening + b"],") + orjson.dumps(rest)[1:]
