"""Reads request bodies within limits of size, memory and time, and limits the work of the JSON parser.

A JSON text of 8 MiB can hold millions of values. A parser that makes an object of each value takes hundreds of
megabytes, and seconds during which no other thread runs. A valid request has a few fields and a list of texts. The
values are therefore counted before the text is parsed, by operations on bytes that take milliseconds.
"""

import asyncio
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from fastapi import Request

from memory_embedder.errors import EmbedderError, ErrorKind
from memory_embedder.http.connections import REFUSAL

SMALL_BYTES = 64 << 10  # a smaller body is parsed at once, and bounded by the number of connections
MOST_VALUES = 4096  # of one body, twice the texts of a request
_DEEPEST = 16
_NESTING = {0x5B: 1, 0x7B: 1, 0x5D: -1, 0x7D: -1}  # of [ { ] }
_HALF = re.compile(  # an escaped half of a surrogate pair whose other half is not beside it
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_FIRST_HALF = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}")
_ESCAPE_BYTES = 6  # of \uXXXX
_NOT_STRUCTURE = bytes(set(range(256)) - {*_NESTING, 0x2C})


class MemoryBudget:
    """A common limit for the bytes of large bodies and answers in memory. Only the event loop may use it.

    A caller may always have one large request, if there is room. Further ones may hold, with it, half of what other
    callers leave, or all of it where no key tells callers apart; and half of that while their bodies are still
    arriving, since it is up to the client how long that takes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._large: set[MemoryShare] = set()

    @contextmanager
    def share(self, caller: bytes | None = None) -> "Iterator[MemoryShare]":
        """Give one request a share of the budget for the time of the block; `caller` is that of `Lanes.admit`."""
        share = MemoryShare(self, caller)
        try:
            yield share
        finally:
            self._large.discard(share)

    def count(self, share: "MemoryShare", size: int) -> None:
        """Check that a large request may hold `size` bytes, and count it.

        Raises:
            EmbedderError: `OVERLOADED` if there is no room for the bytes now, or not for this caller.
        """
        others = [one for one in self._large if one is not share]
        own = [one for one in others if one.caller == share.caller]
        room = self._limit - sum(one.counted for one in others)
        held = sum(one.counted for one in own)
        most = (room + held) // (1 if share.caller is None else 2)
        arriving = size + sum(one.counted for one in own if one.arriving)
        if size > room or (own and (held + size > most or (share.arriving and arriving > most // 2))):
            raise EmbedderError(
                ErrorKind.OVERLOADED,
                "Too many large requests at once; send the request again in 1 s.",
                retry_after_seconds=1,
            )
        self._large.add(share)


class MemoryShare:
    """The bytes that one request has in memory; `arriving` says that more of its body will come.

    `counted` is the number of these bytes that are counted in the budget. It is 0 while the request is small.
    """

    def __init__(self, budget: MemoryBudget, caller: bytes | None) -> None:
        self._budget = budget
        self._size = 0
        self.caller = caller
        self.arriving = False
        self.counted = 0

    def add(self, size: int, *, arriving: bool = False) -> None:
        """Add `size` bytes to the request; `arriving` says that more of its body will come.

        Raises:
            EmbedderError: `OVERLOADED` if the request is large and the budget has no room for it now.
        """
        self._size += size
        self.arriving = arriving
        if self._size > SMALL_BYTES:
            self._budget.count(self, self._size)
            self.counted = self._size


def surplus_bytes(texts: Iterable[str]) -> int:
    """Return how many bytes texts take in memory beyond one a character.

    Python holds each character of a text as widely as the widest one needs: an emoji in a text of English makes it four
    times as large as it is in UTF-8.
    """
    return sum(sys.getsizeof(text) - len(text) for text in texts)


async def read_body(request: Request, share: MemoryShare, most_bytes: int, seconds: float) -> bytes:
    """Read the whole body of a request and count its bytes in `share`.

    Raises:
        EmbedderError: the body is larger than `most_bytes`, all large requests together need too much memory, the body
            did not arrive within `seconds`, or the caller disconnected or was refused.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and len(declared) < 20 and int(declared) > most_bytes:
        raise _too_large(most_bytes)
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(seconds):
            more = True
            while more:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    gone = EmbedderError(ErrorKind.CLIENT_GONE, "The caller closed the connection.")
                    raise request.scope.get("state", {}).get(REFUSAL, gone)
                chunk, more = message.get("body", b""), message.get("more_body", False)
                size += len(chunk)
                if size > most_bytes:
                    raise _too_large(most_bytes)
                share.add(len(chunk), arriving=more)
                chunks.append(chunk)
    except TimeoutError:
        raise EmbedderError(ErrorKind.TIMEOUT, f"The body did not arrive within {seconds:.0f} s.") from None
    return b"".join(chunks)


def _too_large(most_bytes: int) -> EmbedderError:
    return EmbedderError(
        ErrorKind.TOO_LARGE, f"The body is larger than {most_bytes} bytes; split it into smaller requests."
    )


def check_structure(body: bytes) -> None:
    """Check that a JSON text has no more values and no deeper nesting than a request may have.

    The text may be malformed: only the parser checks that.

    Raises:
        EmbedderError: the text has too many values or too deep a nesting; the message quotes nothing of the text.
    """
    if len(body) <= MOST_VALUES:
        return
    plain = body.replace(rb"\\", b"").replace(rb"\"", b"")  # what is left of quotes begins and ends strings
    crowded = plain.count(b'"') > 2 * MOST_VALUES
    structure = b"" if crowded else b"".join(plain.split(b'"')[::2]).translate(None, delete=_NOT_STRUCTURE)
    depth = 0
    for sign in structure[:MOST_VALUES]:
        depth += _NESTING.get(sign, 0)
        if depth > _DEEPEST:
            raise EmbedderError(ErrorKind.MALFORMED, "The body is nested too deeply; see /openapi.json.")
    if crowded or len(structure) > MOST_VALUES:
        raise EmbedderError(
            ErrorKind.TOO_LARGE,
            "The body holds more values than a request may have; split it into smaller requests of texts.",
        )


def with_whole_characters(body: bytes, part: int = SMALL_BYTES) -> bytes:
    """Return a JSON text with U+FFFD in the place of each escaped half of a surrogate pair, in linear time.

    JavaScript cuts texts between the halves of an emoji, and writes such a half as an escape that no parser accepts.
    The text is searched in parts of at most `part` bytes, at least 32, since no other thread runs during a search: one
    of 8 MiB takes 300 ms.
    """
    if b"\xff" in body or rb"\u" not in body:  # no UTF-8, or no escape
        return body
    plain = body.replace(rb"\\", b"\xff\xff")  # an escaped backslash begins no other escape
    return b"".join(_HALF.sub(rb"\\ufffd", one) for one in _parts(plain, part)).replace(b"\xff\xff", rb"\\")


def _parts(plain: bytes, most: int) -> Iterator[bytes]:
    """Yield the parts of a text, none of which ends inside an escape or between the halves of a pair."""
    begin = 0
    while begin < len(plain):
        end = begin + most
        if end < len(plain):
            escape = plain.rfind(b"\\", end - _ESCAPE_BYTES, end)
            if escape >= 0:
                end = escape - _ESCAPE_BYTES if _FIRST_HALF.match(plain, escape - _ESCAPE_BYTES) else escape
        yield plain[begin:end]
        begin = end
