"""Fetching and copying model files: from which addresses, and the file that stays the one that was verified."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import stamina

from memory_embedder import cli
from memory_embedder.errors import EmbedderError, ErrorKind
from memory_embedder.models.fetch_addresses import CheckedTransport
from memory_embedder.models.fetching import copy_file, fetch_file
from memory_embedder.models.model_file import ModelFile
from memory_embedder.telemetry.termination import write_termination_message

CONTENT = bytes(range(256)) * 4000
DIGEST = hashlib.sha256(CONTENT).hexdigest()
ADDRESS = "http://models/m"


def fetch(
    target: Path, transport: httpx.BaseTransport, *, url: str = ADDRESS, digest: str = DIGEST, most: int = 10**9
) -> None:
    fetch_file(url, target, digest, most_bytes=most, transport=transport)


def flaky_server(cut_at: int, ranges: list[str | None]) -> httpx.MockTransport:
    """Breaks the connection after `cut_at` bytes of every answer, and records the `Range` header of every request."""

    class Cut(httpx.SyncByteStream):
        def __init__(self, data: bytes) -> None:
            self.data = data

        def __iter__(self) -> Iterator[bytes]:
            yield self.data[:cut_at]
            if len(self.data) > cut_at:
                raise httpx.ReadError("connection reset")

    def answer(request: httpx.Request) -> httpx.Response:
        given = request.headers.get("range")
        ranges.append(given)
        start = int(given.removeprefix("bytes=").removesuffix("-")) if given else 0
        return httpx.Response(206 if given else 200, stream=Cut(CONTENT[start:]))

    return httpx.MockTransport(answer)


@pytest.fixture
def without_delays() -> Iterator[None]:
    """Retries follow each other at once."""
    with stamina.set_testing(True, attempts=100, cap=True):
        yield


@pytest.mark.usefixtures("without_delays")
def test_a_broken_download_is_resumed_where_it_stopped(tmp_path: Path) -> None:
    ranges: list[str | None] = []
    target = tmp_path / "model.gguf"
    fetch(target, flaky_server(300_000, ranges))
    assert target.read_bytes() == CONTENT
    assert ranges == [None, "bytes=300000-", "bytes=600000-", "bytes=900000-"]
    assert not (tmp_path / "model.gguf.partial").exists()


@pytest.mark.usefixtures("without_delays")
def test_attempts_count_from_the_last_one_that_brought_something(tmp_path: Path) -> None:
    ranges: list[str | None] = []
    fetch(tmp_path / "m", flaky_server(len(CONTENT) // 20, ranges))
    assert (tmp_path / "m").read_bytes() == CONTENT
    assert len(ranges) >= 20


def test_a_download_that_a_dead_process_began_is_continued_by_the_next(tmp_path: Path) -> None:
    ranges: list[str | None] = []
    (tmp_path / "model.gguf.partial").write_bytes(CONTENT[:777])
    for digest in ("sha256:" + DIGEST, DIGEST):
        fetch(tmp_path / "model.gguf", flaky_server(10**9, ranges), digest=digest)
    assert ranges == ["bytes=777-"]


@pytest.mark.promise("model-digest-compared")
def test_a_file_of_another_digest_never_gets_the_name_and_is_not_resumed(tmp_path: Path) -> None:
    with pytest.raises(EmbedderError, match="digest") as caught:
        fetch(tmp_path / "model.gguf", flaky_server(10**9, []), digest="0" * 64)
    assert caught.value.kind is ErrorKind.MODEL_NOT_VERIFIED
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("without_delays")
@pytest.mark.parametrize(("status", "attempts"), [(404, 1), (503, 8)])
def test_a_refusing_address_is_reported_at_once_and_a_failing_one_after_eight_attempts(
    tmp_path: Path, status: int, attempts: int
) -> None:
    answered: list[int] = []

    def answer(_request: httpx.Request) -> httpx.Response:
        answered.append(status)
        return httpx.Response(status)

    with pytest.raises(EmbedderError) as caught:
        fetch(tmp_path / "m", httpx.MockTransport(answer))
    assert caught.value.kind is ErrorKind.MODEL_NOT_FETCHED
    assert len(answered) == attempts


@pytest.mark.usefixtures("without_delays")
@pytest.mark.parametrize("url", ["ftp://models/m", "models/m", "https:///m", "http://a:b/m"])
def test_an_address_that_cannot_be_asked_is_refused_at_once(tmp_path: Path, url: str) -> None:
    with pytest.raises(EmbedderError, match="must begin with https://"):
        fetch(tmp_path / "m", flaky_server(10**9, []), url=url)


def test_an_address_that_redirects_without_end_is_reported(tmp_path: Path) -> None:
    def answer(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(302, headers={"location": "https://models/m"})

    with pytest.raises(EmbedderError, match="redirects without end"):
        fetch(tmp_path / "m", httpx.MockTransport(answer), url="https://models/m")


@pytest.mark.parametrize("digest", ["", "1" * 63, DIGEST.upper(), "é" * 64, f"md5:{DIGEST}"])
def test_what_is_no_digest_is_refused_before_anything_is_fetched(tmp_path: Path, digest: str) -> None:
    asked: list[str | None] = []
    with pytest.raises(EmbedderError, match="is no digest"):
        fetch(tmp_path / "m", flaky_server(10**9, asked), digest=digest)
    with pytest.raises(EmbedderError, match="is no digest"):
        copy_file(Path(__file__), tmp_path / "m", digest)
    assert not asked


def test_a_server_that_has_no_part_of_the_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(EmbedderError, match="answered 416"):
        fetch(tmp_path / "m", httpx.MockTransport(lambda _request: httpx.Response(416)))


@pytest.mark.usefixtures("without_delays")
def test_another_part_than_was_asked_for_is_not_appended(tmp_path: Path) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        headers = {"content-range": f"bytes 0-{len(CONTENT) - 1}/{len(CONTENT)}"}
        asked = "range" in request.headers
        return httpx.Response(206 if asked else 200, stream=httpx.ByteStream(CONTENT), headers=headers)

    (tmp_path / "m.partial").write_bytes(CONTENT[:777])
    fetch(tmp_path / "m", httpx.MockTransport(answer))
    assert (tmp_path / "m").read_bytes() == CONTENT


@pytest.mark.parametrize("place", ["file/m", "directory"])
def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "directory").mkdir()
    with pytest.raises(EmbedderError, match=f"{place} .*cannot be written"):
        fetch(tmp_path / place, flaky_server(10**9, []))
    with pytest.raises(EmbedderError, match=f"cannot be copied to .*{place}"):
        copy_file(Path(__file__), tmp_path / place, None)


def test_a_full_volume_is_reported_as_such(tmp_path: Path) -> None:
    (tmp_path / "m.partial").symlink_to("/dev/full")
    with pytest.raises(EmbedderError, match="No space left on device") as caught:
        fetch(tmp_path / "m", flaky_server(10**9, []))
    assert caught.value.kind is ErrorKind.MODEL_NOT_FETCHED


def test_a_command_that_fails_leaves_its_reason_for_kubernetes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "termination-log"
    log.touch()
    monkeypatch.setattr(cli, "write_termination_message", lambda error: write_termination_message(error, log))
    monkeypatch.setattr("sys.argv", ["memory-embedder", "copy", str(tmp_path / "absent"), str(tmp_path / "m")])
    with pytest.raises(SystemExit):
        cli.main()
    found = json.loads(log.read_text())
    assert found["reason"] == "Configuration"
    assert "absent cannot be copied" in found["message"]


def test_a_copy_is_verified_and_an_unreadable_source_named(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "volume" / "model.gguf"
    source.write_bytes(CONTENT)
    copy_file(source, target, DIGEST)
    assert target.read_bytes() == CONTENT
    with pytest.raises(EmbedderError, match="another model"):
        copy_file(source, tmp_path / "other", "1" * 64)
    assert not list(tmp_path.glob("other*"))
    with pytest.raises(EmbedderError, match="absent"):
        copy_file(tmp_path / "absent", target, None)


def endless(request: httpx.Request) -> httpx.Response:
    """A body without an end, whose length is not announced."""

    class Endless(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            while True:
                yield CONTENT

    return httpx.Response(200, stream=Endless())


@pytest.mark.promise("model-download-bounded")
@pytest.mark.finding("M5")
@pytest.mark.parametrize("announced", [True, False])
def test_a_file_that_is_larger_than_allowed_is_refused_and_leaves_nothing(tmp_path: Path, *, announced: bool) -> None:
    def announcing(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=CONTENT)

    transport = httpx.MockTransport(announcing if announced else endless)
    with pytest.raises(EmbedderError, match=r"larger than 0 MiB.*--max-mebibytes"):
        fetch(tmp_path / "model.gguf", transport, most=len(CONTENT) - 1)
    assert not list(tmp_path.iterdir())


def test_a_file_as_large_as_allowed_is_fetched(tmp_path: Path) -> None:
    fetch(tmp_path / "m", flaky_server(10**9, []), most=len(CONTENT))
    assert (tmp_path / "m").read_bytes() == CONTENT


@pytest.mark.promise("model-download-bounded")
@pytest.mark.finding("M5")
@pytest.mark.parametrize("url", ["https://models/m", "http://models/m"])
@pytest.mark.parametrize("location", ["http://elsewhere/m", "http://models/other"])
def test_a_redirect_to_plain_http_is_refused(tmp_path: Path, url: str, location: str) -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return httpx.Response(302, headers={"location": location})

    with pytest.raises(EmbedderError, match="plain HTTP"):
        fetch(tmp_path / "m", httpx.MockTransport(answer), url=url)
    assert asked == [url]


def test_a_redirect_that_stays_on_https_is_followed(tmp_path: Path) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host == "models":
            return httpx.Response(302, headers={"location": "https://mirror/m"})
        return httpx.Response(200, stream=httpx.ByteStream(CONTENT))

    fetch(tmp_path / "m", httpx.MockTransport(answer), url="https://models/m")
    assert (tmp_path / "m").read_bytes() == CONTENT


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "weights.gguf"
    path.write_bytes(CONTENT)
    return path


def test_a_file_that_takes_the_name_of_a_verified_one_is_not_the_one_that_is_read(
    weights: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"other weights")
    with ModelFile(weights) as file:
        file.verified_digest(DIGEST)
        other.replace(weights)
        assert file.reference.read_bytes() == CONTENT
        assert weights.read_bytes() == b"other weights"


def test_a_write_to_a_verified_file_is_noticed_though_its_time_is_put_back(weights: Path) -> None:
    with ModelFile(weights) as file:
        file.verified_digest(DIGEST)
        file.check_unchanged()
        times = weights.stat()
        while weights.stat().st_ctime_ns == times.st_ctime_ns:  # the kernel's clock moves in steps
            weights.write_bytes(b"x" * len(CONTENT))
            os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns))
        with pytest.raises(EmbedderError, match=r"weights\.gguf was changed"):
            file.check_unchanged()


@pytest.mark.parametrize("digest", [DIGEST, f"sha256:{DIGEST}", None])
def test_a_digest_is_taken_with_and_without_its_prefix(weights: Path, digest: str | None) -> None:
    with ModelFile(weights) as file:
        assert file.verified_digest(digest) == f"sha256:{DIGEST}"


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
        fetch(tmp_path / "m", checked, url=first)
    assert caught.value.kind is ErrorKind.MODEL_NOT_FETCHED
    assert [request.url.host for request in inner.requests] == ["203.0.113.7"] * first.startswith("https")


@pytest.mark.finding("security L4")
def test_the_address_that_was_checked_is_connected_to_and_the_name_is_verified(tmp_path: Path) -> None:
    answers = [["203.0.113.7"], ["127.0.0.1"]]
    inner = Recording()
    fetch(tmp_path / "m", CheckedTransport(inner, lambda _: answers.pop(0)), url="https://models.example/m")
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
