"""Half a character in a text, as a program leaves it that cuts JavaScript's strings: the other texts are not lost."""

from __future__ import annotations

import json
import random

import httpx
import pytest
from pydantic_core import from_json

from memory_embedder.errors import EmbedderError
from memory_embedder.http import bodies
from memory_embedder.http.bodies import SMALL_BYTES, with_whole_characters
from memory_embedder.http.schemas import EmbeddingRequest, parse_request

HALF = bodies._HALF
PARTS = [
    "\ud83d",
    "\ude00",
    "\udbff",
    "\udfff",
    "\\",
    '"',
    "u",
    "ud83d",
    "\\ud83d",
    "\\u",
    "\U0001f4b0",
    "\n",
    "e",
    " ",
]


def parsed(body: bytes) -> list[str]:
    texts = parse_request(body, EmbeddingRequest).input
    assert isinstance(texts, list)
    return texts


@pytest.mark.finding("embedder 7")
async def test_half_a_character_in_one_text_does_not_refuse_the_list(client: httpx.AsyncClient) -> None:
    """What openai-node sends for `['fine text', 'cost 💰'.slice(0, 6)]`."""
    sent = []
    for last in (rb"cost \ud83d", rb"cost \uDCB0", b"cost \xef\xbf\xbd"):
        answer = await client.post("/v1/embeddings", content=b'{"input": ["fine text", "' + last + b'"]}')
        assert answer.status_code == 200
        sent.append([entry["embedding"] for entry in answer.json()["data"]])
    assert sent[0] == sent[1] == sent[2]


@pytest.mark.finding("embedder 7")
def test_only_lone_halves_are_replaced_whatever_stands_beside_them() -> None:
    """Texts of halves, pairs, escapes and backslashes, compared with what UTF-16 makes of them."""
    chance = random.Random(7)  # noqa: S311 -- the same texts at each run
    for _ in range(3000):
        text = "a" + "".join(chance.choices(PARTS, k=chance.randint(1, 8)))
        body = json.dumps({"input": [text]}).encode()
        expected = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        assert parsed(body) == [expected]
        assert from_json(with_whole_characters(body))["input"] == [expected]
        for part in range(32, 48):
            assert with_whole_characters(body * 3, part) == with_whole_characters(body) * 3


def test_no_more_than_a_small_body_is_searched_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """During a search no other thread runs, so that of a large body held up everybody's queries and health probes."""
    searched: list[int] = []

    class Recorded:
        def sub(self, by: bytes, text: bytes) -> bytes:
            searched.append(len(text))
            return HALF.sub(by, text)

    monkeypatch.setattr(bodies, "_HALF", Recorded())
    for body in (rb"\ud83d" * 100_000, rb"\ud83d\ude00" * 50_000, rb"\u0061" + b"a" * 600_000):
        searched.clear()
        with_whole_characters(body)
        assert sum(searched) == len(body)
        assert SMALL_BYTES // 2 < max(searched) <= SMALL_BYTES


@pytest.mark.finding("embedder 7")
def test_a_body_of_whole_characters_is_not_changed() -> None:
    for text in ("plain", "\U0001f4b0 \\ud83d", "\\" * 9):
        body = json.dumps({"input": text}).encode()
        assert with_whole_characters(body) == body


@pytest.mark.finding("embedder 7")
@pytest.mark.parametrize("body", [b'{"input": "\xff \\ud83d"}', b'{"input": "\xed\xa0\xbd"}', b'{"input": "\\ud83"}'])
def test_what_is_no_utf_8_or_no_escape_is_refused_all_the_same(body: bytes) -> None:
    with pytest.raises(EmbedderError, match="must be a JSON object in UTF-8"):
        parse_request(body, EmbeddingRequest)
