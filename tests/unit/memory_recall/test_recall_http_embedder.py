"""The API's embedder protocol: plain lists for the API, and nothing sensitive on the wire."""

import base64
import json

import httpx
import numpy as np
import pytest

from memory_recall.embedding.blocking_client import HttpEmbedder
from memory_recall.errors import EmbedderUnavailable, InvalidInput

ENCODED = base64.b64encode(np.array([0.6, 0.8], dtype="<f4").tobytes()).decode()


def test_a_query_and_a_memory_are_embedded_as_what_they_are() -> None:
    """Both come back as lists, as the API writes them into its statements."""
    kinds: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        kinds.append(json.loads(request.content)["input_type"])
        return httpx.Response(200, json={"data": [{"index": 0, "embedding": ENCODED}], "digest": "sha256:aa"})

    embedder = HttpEmbedder("http://embedder:8080", "m", transport=httpx.MockTransport(handler))
    assert embedder.embed_query("q") == pytest.approx([0.6, 0.8])
    assert embedder.embed_document("d", is_sensitive=False) == pytest.approx([0.6, 0.8])
    assert kinds == ["query", "document"]
    embedder.close()


def test_a_sensitive_memory_is_never_sent() -> None:
    """No request is made, so nothing on the way can log it."""

    def handler(_: httpx.Request) -> httpx.Response:
        raise AssertionError("a request was made")

    embedder = HttpEmbedder("http://embedder:8080", transport=httpx.MockTransport(handler))
    assert embedder.embed_document("the password", is_sensitive=True) is None


@pytest.mark.finding("security S13")
def test_a_sensitive_query_is_sent_to_no_embedder_beyond_the_cluster() -> None:
    """Another query is, and a sensitive one is sent within the cluster."""
    sent: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        sent.append(request.url.host)
        return httpx.Response(200, json={"data": [{"index": 0, "embedding": ENCODED}], "digest": "sha256:aa"})

    transport = httpx.MockTransport(handler)
    far = HttpEmbedder("https://embedder.example.com", query_egress=True, transport=transport)
    with pytest.raises(InvalidInput, match="by words alone"):
        far.embed_query("the password", is_sensitive=True)
    assert sent == []
    assert far.embed_query("the kettle") == pytest.approx([0.6, 0.8])
    near = HttpEmbedder("http://embedder:8080", transport=transport)
    assert near.embed_query("the password", is_sensitive=True) == pytest.approx([0.6, 0.8])
    assert sent == ["embedder.example.com", "embedder"]


def test_a_failure_is_one_of_our_errors_without_the_text() -> None:
    """The API logs what it catches."""

    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("while sending the password", request=request)

    embedder = HttpEmbedder("http://embedder:8080", transport=httpx.MockTransport(handler))
    with pytest.raises(EmbedderUnavailable) as caught:
        embedder.embed_query("the password")
    assert "password" not in str(caught.value)
