"""Splits what a database server sends into messages, and checks each before asyncpg reads it.

asyncpg's compiled code trusts the lengths inside a message: at a negative one it reads beyond its memory, which ends
the process, and it allocates an array of whatever size is announced. It also hashes the password as often as the server
demands, and the event loop stands still meanwhile. Messages are described in Postgres's documentation
(https://www.postgresql.org/docs/current/protocol-message-formats.html), the number of iterations in RFC 5802.

A row is compared with the columns that were described last, and no column may be an array. So a statement must be
described again before each execution, and must not take or return an array: asyncpg would first execute a statement of
its own to learn about the type.
"""

import re
from collections.abc import Mapping, Sequence

_HEADER_BYTES = 5  # a message's type and its length
_NULL = -1  # the length of a value that is null
_SHORTEST = 4  # the length of a message without a body; it counts itself
# In the server's first message of SCRAM. Postgres demands 4,096 iterations unless configured otherwise; 100,000 take
# some 25 ms, and the largest possible number takes minutes.
_TOO_MANY_ITERATIONS = re.compile(rb",i=\d{6,}")

# What observations of a database return, by the object ids of Postgres's catalog `pg_type`: bool, "char", name, int8,
# int2, int4, regproc, text, oid, xid, json, float4, float8, varchar, timestamptz, regclass, void, jsonb.
_VALUES = frozenset({16, 18, 19, 20, 21, 23, 24, 25, 26, 28, 114, 700, 701, 1043, 1184, 2205, 2278, 3802})
_TEXT = None  # a text, which a zero byte ends; a number stands for as many bytes
_LAYOUTS: Mapping[str, Sequence[int | None]] = {
    **dict.fromkeys("123nIs", ()),  # parsed, bound, closed, no columns, empty statement, more rows are left
    "Z": (1,),  # ready
    "K": (8,),  # key by which a statement can be cancelled
    "S": (_TEXT, _TEXT),  # parameter of the session
    "C": (_TEXT,),  # statement completed
    "A": (4, _TEXT, _TEXT),  # notification
}
_LISTS_OF_TEXTS = "EN"  # error, notice: texts, each after a byte that says what it is, until this byte is zero


class MalformedMessageError(Exception):
    """A server's message must not reach asyncpg; the text says what the server did."""


class ServerMessages:
    """The messages of one connection. None may be longer than `longest` bytes."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._pending = bytearray()
        self._columns = 0  # how many were described last

    def completed_by(self, data: bytes) -> bytes:
        """Return the messages that this data completes, as they were sent. The rest is kept for the next call.

        Raises:
            MalformedMessageError: a message has an impossible length, or a body that asyncpg cannot read safely.
        """
        self._pending += data
        end = 0
        while len(self._pending) - end >= _HEADER_BYTES:
            length = int.from_bytes(self._pending[end + 1 : end + _HEADER_BYTES], signed=True)
            if length < _SHORTEST:
                raise MalformedMessageError(f"announced a message of fewer than {_SHORTEST} bytes")
            if length > self._longest:
                raise MalformedMessageError(f"announced a message of more than {self._longest} bytes")
            following = end + 1 + length
            if following > len(self._pending):
                break
            self._check(chr(self._pending[end]), bytes(self._pending[end + _HEADER_BYTES : following]))
            end = following
        found = bytes(self._pending[:end])
        del self._pending[:end]
        return found

    def _check(self, kind: str, content: bytes) -> None:
        body = _Body(kind, content)
        if kind in _LAYOUTS:
            body.skip_all(_LAYOUTS[kind])
        elif kind in _LISTS_OF_TEXTS:
            while body.number(1):
                body.skip_text()
        elif kind == "R":  # authentication
            _check_authentication(body, content)
        elif kind == "t":  # types of parameters
            body.skip(4 * body.count())
        elif kind == "T":  # columns
            self._columns = _check_columns(body)
        elif kind == "D":  # row
            self._check_row(body)
        else:
            raise MalformedMessageError(f"sent a message of type {kind!a}, which nobody asked for")
        if body.left:
            raise body.malformed

    def _check_row(self, body: "_Body") -> None:
        if body.count() != self._columns:
            raise MalformedMessageError("sent a row of other columns than it described")
        for _ in range(self._columns):
            length = body.number(4)
            if length != _NULL:
                body.skip(length)


class _Body:
    """A message's body, read from its start to its end; reading beyond the end is an error."""

    def __init__(self, kind: str, content: bytes) -> None:
        self.malformed = MalformedMessageError(f"sent a malformed message of type {kind!a}")
        self._content = content
        self._at = 0

    @property
    def left(self) -> int:
        """The number of bytes that have not been read."""
        return len(self._content) - self._at

    def skip(self, count: int) -> None:
        """Read `count` bytes."""
        if not 0 <= count <= self.left:
            raise self.malformed
        self._at += count

    def skip_all(self, layout: Sequence[int | None]) -> None:
        """Read the parts of `layout` without returning them: a number means that many bytes, and None a text."""
        for size in layout:
            if size is None:
                self.skip_text()
            else:
                self.skip(size)

    def number(self, size: int) -> int:
        """Read a signed number of `size` bytes."""
        begin = self._at
        self.skip(size)
        return int.from_bytes(self._content[begin : self._at], signed=True)

    def count(self) -> int:
        """Read a number of two bytes that must not be negative."""
        found = self.number(2)
        if found < 0:
            raise self.malformed
        return found

    def skip_text(self) -> None:
        """Read a text, and the zero byte that ends it."""
        end = self._content.find(0, self._at)
        if end < 0:
            raise self.malformed
        self._at = end + 1


def _check_authentication(body: _Body, content: bytes) -> None:
    if _TOO_MANY_ITERATIONS.search(content):
        raise MalformedMessageError("demanded 100,000 or more iterations of hashing a password")
    body.skip_all((4, body.left - 4))  # asyncpg reads the rest safely


def _check_columns(body: _Body) -> int:
    """Check the description of a row's columns, and return how many there are."""
    columns = body.count()
    for _ in range(columns):
        body.skip_text()
        body.skip(6)
        kind = body.number(4)
        body.skip(8)
        if kind not in _VALUES:
            raise MalformedMessageError(f"described a column of the type {kind}, which nobody asked for")
    return columns
