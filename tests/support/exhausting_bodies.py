"""Bodies of requests to an embedder that are about as large as it accepts, and expensive to process.

Each consists of as many values as fit, or of texts that cost much.
"""

import json
from collections.abc import Callable
from typing import Any

_LARGEST = 8 << 20
_REPEATED = {  # what comes before, what fills eight MiB, and what comes behind
    "numbers": (b'{"input":[', b"1,", b"1]}"),
    "lists": (b'{"input":[', b"[],", b"[]]}"),
    "lists of numbers": (b'{"input":[', b"[1,2,3],", b"[1]]}"),
    "nulls": (b'{"input":[', b"null,", b"null]}"),
    "objects": (b'{"input":[', b"{},", b"{}]}"),
    "empty texts": (b'{"input":[', b'"",', b'""]}'),
    "short texts": (b'{"input":[', b'"a",', b'"a"]}'),
    "fields": (b"{", b'"a":1,', b'"input":"a"}'),
    "nesting": (b'{"input":', b"[", b"]}"),
    "digits": (b'{"input":', b"9", b"}"),
    "white space": (b'{"input":', b" ", b'"a"}'),
    "one word": (b'{"input":"', b"a", b'"}'),
    "blanks in a text": (b'{"input":"a', b" ", b'b"}'),
    "escapes": (b'{"input":"', b"\\n", b'"}'),
    "open string": (b'{"input":"', b'\\"', b""),
}
_TEXTS: dict[str, Callable[[], dict[str, Any]]] = {
    # Marks of two classes, of which all of one class are moved before the other by normalisation.
    "marks": lambda: {"input": "\u0301" * 1_000_000 + "\u0323" * 1_000_000, "input_type": "query"},
    "large answer": lambda: {"input": ["a"] * 2048, "encoding_format": "float"},
    "many queries": lambda: {"input": ["a b"] * 2000, "input_type": "query"},
    "long texts": lambda: {"input": ["word " * 800] * 2000},
}
EXHAUSTING = (*_REPEATED, *_TEXTS)


def exhausting(name: str) -> bytes:
    """Return the body of an exhausting request; `name` is one of `EXHAUSTING`."""
    if name in _TEXTS:
        return json.dumps(_TEXTS[name](), ensure_ascii=False).encode()
    opening, part, end = _REPEATED[name]
    return opening + part * ((_LARGEST - len(opening) - len(end)) // len(part)) + end
