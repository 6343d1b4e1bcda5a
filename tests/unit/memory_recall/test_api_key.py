"""The API key of an embedder: given as a text, or in a file that may change while the process runs."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from memory_recall.embedding.api_key import BearerKey
from memory_recall.embedding.blocking_client import HttpEmbedder
from memory_recall.embedding.client import EmbedderClient
from memory_recall.embedding.following import FollowingEmbedder
from memory_recall.errors import EmbedderBroken, EmbedderUnauthorized, InvalidConfiguration
from memory_recall.indexing.embedders import connector, query_embedder
from memory_recall.indexing.progress import LogProgress, WorkerMetrics
from memory_recall.settings import Settings
from tests.support.voyage import voyage_client

KEY = "pa-key-canary"
MODELS = {"object": "list", "data": [{"id": "all-MiniLM-L6-v2", "dimensions": 384}]}


def write(file: Path, content: str) -> None:
    file.write_bytes(content.encode())


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    file = tmp_path / "key"
    write(file, f"{KEY}\n")
    return file


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The keys of all requests of clients that are made from now on."""
    keys: list[str | None] = []

    def handle(request: httpx.Request) -> httpx.Response:
        keys.append(request.headers.get("authorization"))
        return httpx.Response(200, json=MODELS)

    ordinary = httpx.AsyncClient.__init__

    def initialise(self: httpx.AsyncClient, **options: Any) -> None:
        ordinary(self, **{**options, "transport": httpx.MockTransport(handle)})

    monkeypatch.setattr(httpx.AsyncClient, "__init__", initialise)
    return keys


@pytest.mark.finding("D24")
async def test_a_rotated_key_is_used_for_the_next_request_of_a_client_that_is_open(
    key_file: Path, heard: list[str | None]
) -> None:
    async with EmbedderClient("http://embedder:8080", api_key=key_file) as client:
        await client.model_info()
        write(key_file, "rotated")
        await client.model_info()
    assert heard == [f"Bearer {KEY}", "Bearer rotated"]


async def test_what_embeds_for_an_api_sends_the_rotated_key_of_a_file(key_file: Path, heard: list[str | None]) -> None:
    """The client that follows swaps, and the one that blocks, as those of the workers do."""

    def handle(request: httpx.Request) -> httpx.Response:
        heard.append(request.headers.get("authorization"))
        return httpx.Response(200, json=MODELS)

    following = FollowingEmbedder("http://embedder:8080", api_key=key_file)
    blocking = HttpEmbedder("http://embedder:8080", api_key=key_file, transport=httpx.MockTransport(handle))
    for key in (KEY, "rotated"):
        write(key_file, key)
        with pytest.raises(EmbedderBroken):
            await following.embed_query("a question")
        with pytest.raises(EmbedderBroken):
            blocking.embed_query("a question")
    await following.close()
    blocking.close()
    assert heard == [f"Bearer {KEY}"] * 2 + ["Bearer rotated"] * 2


async def test_a_key_that_is_given_as_a_text_is_sent_as_it_is(heard: list[str | None]) -> None:
    async with EmbedderClient("http://embedder:8080", api_key=KEY) as client:
        await client.model_info()
    assert heard == [f"Bearer {KEY}"]


async def test_workers_and_commands_read_the_file_that_the_settings_name(
    key_file: Path, heard: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMORY_EMBEDDER_URL", "http://embedder:8080")
    monkeypatch.setenv("MEMORY_EMBEDDER_API_KEY_FILE", str(key_file))
    settings = Settings()
    connect = connector(settings, LogProgress(WorkerMetrics(), worker="sync"))
    for client in (connect("http://embedder:8080", "all-MiniLM-L6-v2"), query_embedder(settings)):
        assert client is not None
        async with client as embedder:
            await embedder.model_info()
    assert heard == [f"Bearer {KEY}"] * 2


@pytest.mark.parametrize("name", ["key", "missing"])
async def test_a_missing_or_empty_file_is_named_and_no_request_is_sent(
    key_file: Path, heard: list[str | None], name: str
) -> None:
    write(key_file, " \n")
    key_file = key_file.with_name(name)
    async with (
        EmbedderClient("http://embedder:8080", api_key=key_file) as client,
        voyage_client("voyage-test", 8, key_file) as voyage,
    ):
        with pytest.raises(EmbedderUnauthorized, match=str(key_file)):
            await client.model_info()
        with pytest.raises(EmbedderUnauthorized, match=str(key_file)):
            await voyage.embed_query("a question")
    assert heard == []


def test_of_a_file_with_the_keys_of_several_callers_the_first_is_sent(key_file: Path) -> None:
    """It is the same Secret that the embedder reads."""
    write(key_file, "ours\ntheirs\n")
    assert BearerKey(key_file).read() == "ours"
    assert BearerKey("ours\r\ntheirs").read() == "ours"


@pytest.mark.parametrize("key", ["clé", "one\ttwo", "one\x0btwo"], ids=["not ASCII", "a tab", "a vertical tab"])
async def test_a_key_that_no_header_can_hold_is_refused_and_not_quoted(
    key_file: Path, heard: list[str | None], key: str
) -> None:
    write(key_file, key)
    async with EmbedderClient("http://embedder:8080", api_key=key_file) as client:
        with pytest.raises(EmbedderUnauthorized, match="no HTTP header can hold") as refused:
            await client.model_info()
    with pytest.raises(InvalidConfiguration, match="no HTTP header can hold"):
        EmbedderClient("http://embedder:8080", api_key=key)
    assert key not in str(refused.value)
    assert heard == []


def test_a_hosted_provider_without_a_key_is_refused() -> None:
    with pytest.raises(InvalidConfiguration, match="key is empty"):
        voyage_client("voyage-test", 8, " ")


async def test_neither_client_shows_its_key(key_file: Path) -> None:
    async with EmbedderClient("http://embedder:8080", api_key=KEY) as client, voyage_client("m", 8, key_file) as voyage:
        assert KEY not in repr([client, voyage, vars(client), vars(voyage)])
