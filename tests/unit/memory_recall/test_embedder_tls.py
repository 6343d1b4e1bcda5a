"""An embedder that an authority of one's own has signed is verified by it, and a rotated authority is followed."""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from devcluster.node.pki import Authority
from memory_recall import EmbedderApi, EmbedderClient, EmbedderOptions, ExternalEmbedder, HttpEmbedder
from memory_recall.embedding.following import FollowingEmbedder
from memory_recall.embedding.tls import MOST_CHARACTERS, EmbedderTls
from memory_recall.errors import EmbedderUnavailable, InvalidConfiguration

VECTOR = {"index": 0, "embedding": base64.b64encode(np.array([0.6, 0.8], dtype="<f4").tobytes()).decode()}


class TlsServer:
    """Answers every request with a vector, one request a connection; `authority` signs its certificate."""

    def __init__(self, folder: Path, authority: Authority) -> None:
        self._folder = folder
        self.authority = authority
        self.requests = 0
        self.port = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        pair = self.authority.server("localhost")
        certificate, key = self._folder / "tls.crt", self._folder / "tls.key"
        certificate.write_bytes(pair.certificate)
        key.write_bytes(pair.key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server = await asyncio.start_server(self._answer, "127.0.0.1", self.port, ssl=context)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield f"https://localhost:{self.port}"

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        body = await reader.readexactly(int(head.partition("content-length: ")[2].split("\r\n")[0]))
        self.requests += 1
        ours = {"digest": "sha256:aa"} if b"input_type" in body else {}
        answer = json.dumps({"data": [VECTOR], "model": "m", **ours}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(answer) + answer)
        await writer.drain()
        writer.close()


async def ask_ours(url: str, ca_file: Path | None) -> list[float]:
    async with EmbedderClient(url, "m", ca_file=ca_file) as client:
        return [float(number) for number in await client.embed_query("q")]


async def ask_third_party(url: str, ca_file: Path | None) -> list[float]:
    options = EmbedderOptions(EmbedderApi.OPENAI)
    async with ExternalEmbedder(url, "m", options=options, dimensions=2, ca_file=ca_file) as client:
        return [float(number) for number in await client.embed_query("q")]


async def ask_following(url: str, ca_file: Path | None) -> list[float]:
    client = FollowingEmbedder(url, "m", ca_file=ca_file)
    try:
        return await client.embed_query("q")
    finally:
        await client.close()


async def ask_blocking(url: str, ca_file: Path | None) -> list[float]:
    client = HttpEmbedder(url, "m", ca_file=ca_file)
    try:
        return await asyncio.to_thread(client.embed_query, "q")
    finally:
        client.close()


@pytest.mark.parametrize("ask", [ask_ours, ask_third_party, ask_following, ask_blocking])
async def test_an_embedder_is_verified_by_an_authority_of_ones_own(ask: Callable[..., object], tmp_path: Path) -> None:
    """Without that authority, and with another one, nothing is sent, and the error names certificate and remedy."""
    server, given, other = TlsServer(tmp_path, Authority()), tmp_path / "ca.crt", tmp_path / "other.crt"
    given.write_bytes(server.authority.certificate)
    other.write_bytes(Authority().certificate)
    async with server.running() as url:
        for wrong in (None, other):
            with pytest.raises(EmbedderUnavailable, match="certificate that is not accepted") as refused:
                await ask(url, wrong)  # type: ignore[misc]  # each is a coroutine function
            assert "MEMORY_EMBEDDER_CA_FILE" in refused.value.remedy
        assert server.requests == 0
        assert await ask(url, given) == pytest.approx([0.6, 0.8])  # type: ignore[misc]


async def test_names_of_authorities_in_any_language_may_stand_between_their_certificates(tmp_path: Path) -> None:
    """Bundles of Linux distributions have a comment before each, one of which is Hungarian."""
    server, given = TlsServer(tmp_path, Authority()), tmp_path / "ca.crt"
    given.write_bytes("# Főtanúsítvány\n".encode() + Authority().certificate + server.authority.certificate)
    async with server.running() as url:
        assert await ask_ours(url, given) == pytest.approx([0.6, 0.8])


async def test_a_rotated_authority_is_followed_without_a_new_client(tmp_path: Path) -> None:
    """So it is in a folder of several files, as pods have them, and while a file holds none for a moment."""
    folder = tmp_path / "authorities"
    folder.mkdir()
    server, file = TlsServer(tmp_path, Authority()), folder / "active.crt"
    file.write_bytes(server.authority.certificate)
    (folder / "..data").mkdir()
    (folder / "next.crt").write_bytes(Authority().certificate)
    async with server.running() as url, EmbedderClient(url, "m", ca_file=folder) as client:
        await client.embed_query("q")
    async with EmbedderClient(url, "m", ca_file=folder) as client:
        server.authority = Authority()
        async with server.running():
            with pytest.raises(EmbedderUnavailable):
                await client.embed_query("q")
            file.write_bytes(server.authority.certificate)
            assert await client.embed_query("q") == pytest.approx([0.6, 0.8])
            file.write_text("")
            assert await client.embed_query("q") == pytest.approx([0.6, 0.8])


@pytest.mark.parametrize("content", [None, "", "no certificate"])
async def test_a_file_without_certificates_is_refused_before_anything_is_sent(
    content: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "ca.crt"
    if content is not None:
        file.write_text(content)
    with pytest.raises(InvalidConfiguration, match="MEMORY_EMBEDDER_CA_FILE"):
        EmbedderClient("https://localhost", "m", ca_file=file)


async def test_a_folder_without_files_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="MEMORY_EMBEDDER_CA_FILE"):
        EmbedderClient("https://localhost", "m", ca_file=tmp_path)


async def test_more_than_certificates_can_take_is_refused_and_does_not_replace_them(tmp_path: Path) -> None:
    """So it is with an endless file, of which no more than the bound is read, and a folder of many files."""
    for endless in (Path("/dev/zero"), tmp_path / "large.crt"):
        if endless.parent == tmp_path:
            endless.write_text("x" * (MOST_CHARACTERS + 1))
        with pytest.raises(InvalidConfiguration, match="more than 1024 KiB"):
            EmbedderClient("https://localhost", "m", ca_file=endless)
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(101):
        (folder / f"{number}.crt").write_text("")
    with pytest.raises(InvalidConfiguration, match="more than 100 files"):
        EmbedderClient("https://localhost", "m", ca_file=folder)
    server, file = TlsServer(tmp_path, Authority()), tmp_path / "ca.crt"
    file.write_bytes(server.authority.certificate)
    async with server.running() as url, EmbedderClient(url, "m", ca_file=file) as client:
        await client.embed_query("q")
        file.write_bytes(Authority().certificate + b"\n" * MOST_CHARACTERS)
        assert await client.embed_query("q") == pytest.approx([0.6, 0.8])


@pytest.mark.parametrize(("scheme", "times"), [("http", 0), ("https", 1)])
def test_the_public_authorities_are_read_once_for_all_connections_of_a_client_and_not_without_tls(
    monkeypatch: pytest.MonkeyPatch, scheme: str, times: int
) -> None:
    """Reading them takes long, and a request that is sent again on a new connection is sent by an API's event loop."""
    read: list[object] = []
    made = ssl.create_default_context

    def count(**options: Any) -> ssl.SSLContext:
        read.append(options)
        return made(**options)

    monkeypatch.setattr(ssl, "create_default_context", count)
    client = EmbedderClient(f"{scheme}://embedder:8080")
    for _ in range(3):
        client._connect(client.base_url)
    assert len(read) == times


def test_a_client_of_an_address_without_tls_trusts_no_server_with_it() -> None:
    """Whatever leads it to one."""
    assert EmbedderTls.of(None, "http://embedder:8080").verify_mode is ssl.CERT_REQUIRED
    assert EmbedderTls.of(None, "http://embedder:8080").get_ca_certs() == []
