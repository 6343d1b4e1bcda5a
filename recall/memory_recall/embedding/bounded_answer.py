"""Reads the answers of HTTP servers within limits of size, time and structure; every client of this package uses it.

Whoever runs an embedder decides what its answers hold, and an address may come from the database. A few hundred
kilobytes of gzip unpack to gigabytes, an answer may never end, and a JSON text of a few megabytes may become millions
of objects. Therefore a request forbids compression and says how many bytes and values its answer may have. A compressed
answer is refused without being unpacked, a long one as soon as it is too long. The values of a JSON text are counted by
operations on bytes before it is parsed, so that parsing takes time and memory in proportion to what was asked for.
"""

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

_IDENTITY = {"accept-encoding": "identity"}
_JSON = {"content-type": "application/json"}
_CODE_LENGTH = 60
_LONGEST_RETRY_SECONDS = 60.0
_DEEPEST = 16  # levels of nesting
_NESTING = {0x5B: 1, 0x7B: 1, 0x5D: -1, 0x7D: -1}  # of [ { ] }
_NO_BRACKETS = bytes(set(range(256)) - set(_NESTING))


class UnusableAnswerError(Exception):
    """An answer breaks a limit, or holds no JSON. The message says how, and quotes nothing of it."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many bytes an answer may have, and how many values if it is JSON."""

    size: int
    values: int


BeforeSending = Callable[[], Awaitable[None]]
"""Is awaited once a connection is established, just before a request's body is written to it, at each attempt.

What it raises ends the request; nothing of the body has been sent then.
"""


@dataclass(frozen=True, slots=True)
class Request:
    """A request to a server, whose address and key its `httpx` client knows, and the bounds of its answer."""

    method: str
    path: str
    bounds: Bounds
    timeout: httpx.Timeout
    body: Mapping[str, Any] | None = None
    before_sending: BeforeSending | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The options of one attempt of the request for httpx."""
        if self.before_sending is None:
            return {"json": self.body, "headers": _IDENTITY, "timeout": self.timeout}
        text = json.dumps(self.body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
        headers = {**_IDENTITY, **_JSON, "content-length": str(len(text))}
        return {"content": _after(self.before_sending, text), "headers": headers, "timeout": self.timeout}

    @property
    def seconds(self) -> float | None:
        """The seconds that a request may take as a whole, however slowly its answer comes; None without a limit."""
        limit = self.timeout
        return None if limit.connect is None or limit.read is None else limit.connect + limit.read


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that was read within its bounds. `retry_after` is None if the server names no delay in seconds."""

    status: int
    body: bytes
    bounds: Bounds
    retry_after: float | None

    def json(self) -> Any:  # noqa: ANN401  (whatever the server sent)
        """Parse the body.

        Raises:
            UnusableAnswerError: the body is no JSON in UTF-8, or has too many values or too deep a nesting.
        """
        _check_structure(self.body, self.bounds.values)
        try:
            return json.loads(self.body.decode())
        except (ValueError, RecursionError):
            raise UnusableAnswerError("it is not JSON") from None

    def error(self) -> dict[str, Any]:
        """Return the object that describes an error in OpenAI's format, or an empty one if there is none."""
        try:
            found = self.json()["error"]
        except (UnusableAnswerError, KeyError, TypeError):
            return {}
        return found if isinstance(found, dict) else {}

    def error_code(self) -> str:
        """Return the code or the type of an error, or ""; never its message, which might echo the request's texts."""
        error = self.error()
        code = error.get("code") or error.get("type")
        if not isinstance(code, str) or len(code) > _CODE_LENGTH:
            return ""
        return code if code.replace("_", "").replace("-", "").isalnum() else ""


async def _after(before_sending: BeforeSending, body: bytes) -> AsyncIterator[bytes]:
    """Yield the body once `before_sending` has returned; httpx asks for it when it has sent the headers."""
    await before_sending()
    yield body


async def fetch(http: httpx.AsyncClient, request: Request) -> Answer:
    """Send a request and read its answer.

    Raises:
        UnusableAnswerError: the answer is compressed or too long.
        TimeoutError: the request takes too long as a whole.
        httpx.HTTPError, httpx.InvalidURL: there is no answer.
    """
    async with (
        asyncio.timeout(request.seconds),
        http.stream(request.method, request.path, **request.options) as response,
    ):
        reading = _Reading(response, request.bounds)
        if not reading.ended:
            async for part in response.aiter_bytes():
                reading.add(part)
                if reading.ended:
                    break
        return reading.answer()


def fetch_blocking(http: httpx.Client, request: Request) -> Answer:
    """Send a request and read its answer, in a thread that may wait.

    The time of the request as a whole is checked after each part of the body.

    Raises:
        UnusableAnswerError: the answer is compressed or too long.
        httpx.HTTPError, httpx.InvalidURL: there is no answer, or it takes too long as a whole.
    """
    ends = math.inf if request.seconds is None else time.monotonic() + request.seconds
    with http.stream(request.method, request.path, **request.options) as response:
        reading = _Reading(response, request.bounds)
        if not reading.ended:
            for part in response.iter_bytes():
                if time.monotonic() > ends:
                    raise httpx.ReadTimeout("", request=response.request)
                reading.add(part)
                if reading.ended:
                    break
        return reading.answer()


class _Reading:
    """An answer of which a part has arrived. Of an error that breaks a limit only the status is kept."""

    def __init__(self, response: httpx.Response, bounds: Bounds) -> None:
        self.ended = False
        self._response = response
        self._bounds = bounds
        self._parts: list[bytes] = []
        self._size = 0
        if response.headers.get("content-encoding", "identity") != "identity":
            self._refuse("it is compressed")

    def add(self, part: bytes) -> None:
        self._size += len(part)
        self._parts.append(part)
        if self._size > self._bounds.size:
            self._refuse(f"it has more than {self._bounds.size} bytes")

    def answer(self) -> Answer:
        status = self._response.status_code
        return Answer(status, b"".join(self._parts), self._bounds, _retry_after(self._response.headers))

    def _refuse(self, what: str) -> None:
        if self._response.status_code == httpx.codes.OK:
            raise UnusableAnswerError(what)
        self.ended, self._parts = True, []


def _retry_after(headers: httpx.Headers) -> float | None:
    """Return the seconds after which to repeat a request by the header `Retry-After`, or None if it names none.

    A date (RFC 9110, section 10.2.3) counts as none, since both clocks would have to agree. A minute is the most, so
    that no server decides for how long a worker stands still; one that is busy for longer says so again.
    """
    try:
        seconds = float(headers["retry-after"])
    except (KeyError, ValueError):
        return None
    return min(max(0.0, seconds), _LONGEST_RETRY_SECONDS) if math.isfinite(seconds) else None


def _check_structure(body: bytes, most_values: int) -> None:
    """Check that a JSON text has neither too many values nor too deep a nesting. Only the parser finds it malformed."""
    plain = body.replace(rb"\\", b"").replace(rb"\"", b"")  # what is left of quotes begins and ends strings
    if plain.count(b'"') > 4 * most_values:  # a member of an object is two strings
        raise UnusableAnswerError(f"it has more than {most_values} values")
    outside = b"".join(plain.split(b'"')[::2])
    brackets = outside.translate(None, delete=_NO_BRACKETS)
    if outside.count(b",") + len(brackets) // 2 > most_values:
        raise UnusableAnswerError(f"it has more than {most_values} values")
    depth = 0
    for sign in brackets:
        depth += _NESTING[sign]
        if depth > _DEEPEST:
            raise UnusableAnswerError("it is nested too deeply")
