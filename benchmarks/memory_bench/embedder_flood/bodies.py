"""Makes the requests of the flood: valid, malformed and exhausting requests.

Malformed requests are listed by hand or generated from the OpenAPI description. An exhausting request is about as large
as the server accepts, and consists of as many values as fit, or of values that are expensive to process.
"""

import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode

from tests.support.exhausting_bodies import EXHAUSTING, exhausting

_MALFORMED_SHARE = 0.3
_EXHAUSTING_SHARE = 0.01
_WORDS = ("router", "backup", "disk", "invoice", "garden", "café", "🚀", "備份", "Straße", "[SEP]", "night", "key")

_WRONG_VALUES: list[Any] = [
    {},
    [],
    None,
    "text",
    {"input": None},
    {"input": ""},
    {"input": "   \n\t"},
    {"input": []},
    {"input": [""]},
    {"input": ["a", ""]},
    {"input": [1, 2, 3]},
    {"input": [[1, 2], [3]]},
    {"input": {"a": 1}},
    {"input": ["a", 1]},
    {"input": [None, True, 3, {}, []]},
    {"input": "a", "model": "gpt-5"},
    {"input": "a", "model": 5},
    {"input": "a", "encoding_format": "hex"},
    {"input": "a", "dimensions": -1},
    {"input": "a", "dimensions": 2**70},
    {"input": "a", "dimensions": "384"},
    {"input": "a", "input_type": "passage"},
    {"input": "a", "truncate": "maybe"},
    {"input": "word " * 5000, "truncate": False},
    {"input": "a", "model": "\u202e" * 1000},
    {"input": ["a"] * 100_000},
    {"inputs": "a"},
    {"a": 1},
]
_NO_JSON = [
    b"",
    b"{",
    b"\x00" * 1000,
    b"\xff\xfe\xfd",
    b"{" * 50_000,
    b"[" * 200_000,
    b'{"input": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b'{"input": NaN}',
    b'{"input": 1e999}',
    b'{"input": ' + b"9" * 5000 + b"}",
    b'{"input": "\xed\xa0\x80"}',
    b'{"input": "a", "input": ',
    b'{"input": "' + b"x" * (9 << 20) + b'"}',
    b"POST / HTTP/1.1\r\n\r\n",
]


@dataclass(frozen=True, slots=True)
class Request:
    """One POST request to /v1/embeddings."""

    body: bytes
    content_type: str
    malformed: bool


def requests(count: int, openapi: dict[str, Any], random_seed: int) -> Iterator[Request]:
    """Yield `count` requests in random order, with every exhausting request at least once.

    `random_seed` determines the order.
    """
    rng = random.Random(random_seed)  # noqa: S311 -- a fixed mixture, not a secret
    by_hand = malformed_by_hand()
    generated = malformed_by_schema(openapi, max(20, min(500, count // 10)))
    largest = [exhausting(name) for name in EXHAUSTING]
    rounds = max(1, int(count * _EXHAUSTING_SHARE) // len(largest))
    places = dict(zip(rng.sample(range(count), rounds * len(largest)), itertools.cycle(largest), strict=False))
    for place in range(count):
        if place in places:
            yield Request(places[place], "application/json", malformed=False)
        elif rng.random() >= _MALFORMED_SHARE:
            yield Request(_valid_body(rng), "application/json", malformed=False)
        elif rng.random() < 0.5:
            yield Request(rng.choice(by_hand), "application/json", malformed=True)
        else:
            yield rng.choice(generated)


def malformed_by_hand() -> list[bytes]:
    """Return the malformed bodies that this module lists: mistakes of client programs, and attacks."""
    return [json.dumps(value).encode() for value in _WRONG_VALUES] + _NO_JSON


def malformed_by_schema(openapi: dict[str, Any], count: int) -> list[Request]:
    """Generate up to `count` requests whose bodies violate the OpenAPI description."""
    schema = schemathesis.openapi.from_dict(openapi)
    operation = schema["/v1/embeddings"]["POST"]
    found: list[Request] = []

    @seed(11)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))
    def collect(case: Any) -> None:  # noqa: ANN401 -- a class of the library's
        body = case.body
        data = body if isinstance(body, bytes) else json.dumps(body, default=str).encode("utf-8", "surrogatepass")
        found.append(Request(data, case.media_type or "application/json", malformed=True))

    collect()
    return found


def _valid_body(rng: random.Random) -> bytes:
    """Return a valid body: mostly short texts, but rarely a long text, control characters, or a word of one MiB."""
    kind = rng.random()
    if kind < 0.002:
        texts = ["x" * (1 << 20)]
    elif kind < 0.01:
        texts = [_text(rng, 600)]
    elif kind < 0.02:
        texts = ["nul \x00 and bell \x07 and \ufeff marks"]
    else:
        texts = [_text(rng, rng.randint(1, 24)) for _ in range(rng.choice((1, 1, 1, 2, 4)))]
    return json.dumps(
        {
            "input": texts if rng.random() < 0.8 else texts[0],
            "input_type": rng.choice(("query", "document", None)),
            "encoding_format": rng.choice(("float", "base64")),
        }
    ).encode()


def _text(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(_WORDS, k=words)) + f" {rng.randrange(10**9)}"
