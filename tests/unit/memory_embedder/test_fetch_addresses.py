"""From which addresses a model file is fetched, and what a failed fetch tells."""

import hashlib
from pathlib import Path

import httpx
import pytest

from memory_embedder.errors import EmbedderError, ErrorKind
from memory_embedder.models.fetch_addresses import CheckedTransport
from memory_embedder.models.fetching import fetch_file

CONTENT = b"weights"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


def fetch(target: Path, transport: httpx.BaseTransport, url: str = "http://models/m", digest: str = DIGEST) -> None:
    fetch_file(url, target, digest, most_bytes=10**9, transport=transport)


class Recording(httpx.BaseTransport):
    """Keeps the requests that would have been sent, and answers with the file or a redirect to `elsewhere`."""

    def __init__(self, elsewhere: str = "") -> None:
        self.requests: list[httpx.Request] = []
        self._elsewhere = elsewhere

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if self._elsewhere and len(self.requests) == 1:
            return httpx.Response(302, headers={"Location": self._elsewhere})
        return httpx.Response(200, stream=httpx.ByteStream(CONTENT))


@pytest.mark.promise("fetch-avoids-the-node")
@pytest.mark.finding("security L4")
@pytest.mark.parametrize("first", ["https://models.example/m", "http://[fe80::1]/m", "http://169.254.169.254/m"])
def test_nothing_is_fetched_from_the_node_or_its_metadata_service(first: str, tmp_path: Path) -> None:
    """Neither by the address that is given nor by one that it redirects to."""
    addresses = {"models.example": ["203.0.113.7"], "evil.example": ["169.254.169.254", "127.0.0.1"]}
    inner = Recording("https://evil.example/latest/meta-data")
    checked = CheckedTransport(inner, lambda host: addresses.get(host, [host]))
    with pytest.raises(EmbedderError, match="metadata service") as caught:
        fetch(tmp_path / "m", checked, first)
    assert caught.value.kind is ErrorKind.MODEL_NOT_FETCHED
    assert [request.url.host for request in inner.requests] == ["203.0.113.7"] * first.startswith("https")


@pytest.mark.finding("security L4")
def test_the_address_that_was_checked_is_connected_to_and_the_name_is_verified(tmp_path: Path) -> None:
    answers = [["203.0.113.7"], ["127.0.0.1"]]
    inner = Recording()
    fetch(tmp_path / "m", CheckedTransport(inner, lambda _: answers.pop(0)), "https://models.example/m")
    (request,) = inner.requests
    assert (request.url.host, request.headers["host"]) == ("203.0.113.7", "models.example")
    assert request.extensions["sni_hostname"] == "models.example"


@pytest.mark.promise("fetch-avoids-the-node")
@pytest.mark.finding("security L4")
def test_a_file_of_another_digest_does_not_tell_its_own(tmp_path: Path) -> None:
    """The status shows this message, and a short file could be guessed by its digest."""
    with pytest.raises(EmbedderError) as caught:
        fetch(tmp_path / "m", Recording(), digest="0" * 64)
    assert DIGEST not in str(caught.value)
    assert caught.value.kind is ErrorKind.MODEL_NOT_VERIFIED
    assert not list(tmp_path.iterdir())
