"""Reads request bodies within bounds: each body, all bodies together, and the time that one may take."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import Request
from starlette.requests import ClientDisconnect

from memory_embedder.errors import EmbedderError, ErrorKind


class BodyReader:
    """Knows how many bytes of bodies are held at this moment; used from the event loop only."""

    def __init__(self, *, one: int, together: int, seconds: float) -> None:
        self._one = one
        self._together = together
        self._seconds = seconds
        self._held = 0

    @asynccontextmanager
    async def body(self, request: Request) -> AsyncIterator[bytes]:
        """The whole body; its bytes count as held until the request is answered."""
        declared = request.headers.get("content-length", "")
        if declared.isdigit() and len(declared) < 20 and int(declared) > self._one:
            raise self._too_large()
        chunks: list[bytes] = []
        held = 0
        try:
            async with asyncio.timeout(self._seconds):
                async for chunk in request.stream():
                    chunks.append(chunk)
                    held += len(chunk)
                    self._held += len(chunk)
                    self._check(held)
            yield b"".join(chunks)
        except TimeoutError:
            raise EmbedderError(ErrorKind.TIMEOUT, f"The body did not arrive within {self._seconds:.0f} s.") from None
        except ClientDisconnect:
            raise EmbedderError(ErrorKind.CLIENT_GONE, "The caller closed the connection.") from None
        finally:
            self._held -= held

    def _check(self, held: int) -> None:
        if held > self._one:
            raise self._too_large()
        if self._held > self._together:
            raise EmbedderError(
                ErrorKind.OVERLOADED,
                "Too many large requests at once; send the request again in 1 s.",
                retry_after_seconds=1,
            )

    def _too_large(self) -> EmbedderError:
        return EmbedderError(
            ErrorKind.TOO_LARGE, f"The body is larger than {self._one} bytes; split it into smaller requests."
        )
