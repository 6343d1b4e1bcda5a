"""Model files through a real proxy: what is asked of it, what is not, and whose certificates are trusted."""

from __future__ import annotations

import hashlib
import http.server
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import httpx
import pytest
import stamina

from devcluster.node.pki import Authority
from memory_embedder.errors import EmbedderError, ErrorKind
from memory_embedder.models import fetch_addresses, fetching
from memory_embedder.models.fetch_addresses import ProxiedTransport
from memory_embedder.models.fetching import checked_transport, fetch_file

CONTENT = bytes(range(256)) * 400
DIGEST = hashlib.sha256(CONTENT).hexdigest()
HOST, REDIRECTING = "models.example", "/redirecting-to/"


class Files(http.server.BaseHTTPRequestHandler):
    """Serves the file at every path, or redirects to the host at the end of the path."""

    def do_GET(self) -> None:
        if self.path.startswith(REDIRECTING):
            self.send_response(302)
            self.send_header("Location", f"https://{self.path.removeprefix(REDIRECTING)}/m")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


class Proxy:
    """A proxy that knows CONNECT alone. It resolves every name to the server of files, and keeps what it was asked."""

    def __init__(self, server: tuple[str, int]) -> None:
        self._server = server
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.asked: list[str] = []
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += client.recv(1)
            method, target, _ = head.split(b" ", 2)
            self.asked.append(f"{method.decode()} {target.decode()}")
            with socket.create_connection(self._server) as server:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                threading.Thread(target=_copy, args=(client, server), daemon=True).start()
                _copy(server, client)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@contextmanager
def served(names: tuple[str, ...], folder: Path) -> Iterator[tuple[tuple[str, int], Path]]:
    """Run the server of files, whose certificate names the hosts; yield its address and its authority's file."""
    authority = Authority()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for name in names:  # one certificate each, as the client asks for
        pair = authority.server(name)
        (folder / "pem").write_bytes(pair.key + pair.certificate)
        own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        own.load_cert_chain(folder / "pem")
        contexts[name] = own
    context.load_cert_chain(folder / "pem")
    context.sni_callback = _certificate_of
    (folder / "ca.crt").write_bytes(authority.certificate)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Files)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield ("127.0.0.1", server.server_address[1]), folder / "ca.crt"
    finally:
        server.shutdown()
        server.server_close()


contexts: dict[str, ssl.SSLContext] = {}


def _certificate_of(connection: ssl.SSLSocket | ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
    connection.context = contexts.get(name or "", connection.context)


Fetch = Callable[..., None]


@pytest.fixture
def fetch(tmp_path: Path, proxy: tuple[Proxy, Path]) -> Fetch:
    """Fetch a URL through the proxy of the environment."""
    _, authority = proxy

    def fetched(url: str, *hosts: str, ca_file: Path | None = authority) -> None:
        target = tmp_path / "model.gguf"
        transport = checked_transport(ca_file=ca_file, permitted=hosts)
        fetch_file(url, target, DIGEST, most_bytes=10**9, transport=transport)
        assert target.read_bytes() == CONTENT

    return fetched


@pytest.fixture
def proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Proxy, Path]]:
    """The proxy, named by the environment, and the file of the authority of the server behind it."""
    names = (HOST, "cdn.example", "127.0.0.1")
    with served(names, tmp_path) as (server, authority):
        running = Proxy(server)
        for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HTTPS_PROXY", running.url)
        monkeypatch.setattr(fetching, "ProxiedTransport", partial(ProxiedTransport, lookup=lookup))
        yield running, authority
        running.close()


def lookup(host: str) -> list[str]:
    """Names that are resolved here; every other has no address, as in a network without names of the internet."""
    known = {"inner.example": ["127.0.0.1"], "both.example": ["169.254.169.254", "203.0.113.7"]}
    if host[0].isdigit() or ":" in host:
        return fetch_addresses.system_lookup(host)
    if host not in known:
        raise OSError
    return known[host]


def test_a_file_is_fetched_through_the_proxy_and_its_server_verified(fetch: Fetch, proxy: tuple[Proxy, Path]) -> None:
    """The proxy resolves the name, which has no address here."""
    fetch(f"https://{HOST}/m", HOST)
    assert proxy[0].asked == [f"CONNECT {HOST}:443"]


def test_a_redirect_goes_through_the_proxy_too(fetch: Fetch, proxy: tuple[Proxy, Path]) -> None:
    """A leading dot permits every name below."""
    fetch(f"https://{HOST}{REDIRECTING}cdn.example", ".example")
    assert proxy[0].asked == [f"CONNECT {HOST}:443", "CONNECT cdn.example:443"]


@pytest.mark.promise("fetch-avoids-the-node")
@pytest.mark.parametrize("url", ["https://other.example/m", f"https://{HOST}{REDIRECTING}other.example"])
def test_no_other_host_is_asked_of_the_proxy(fetch: Fetch, proxy: tuple[Proxy, Path], url: str) -> None:
    """Neither by the URL nor by a redirect; a proxy may reach what the author may not."""
    with pytest.raises(EmbedderError, match=r"fetch\.proxy\.hosts") as refused:
        fetch(url, HOST, ".cdn.example")
    assert refused.value.kind is ErrorKind.MODEL_NOT_FETCHED
    assert not any("other" in one for one in proxy[0].asked)


@pytest.mark.promise("fetch-avoids-the-node")
@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.1", "2130706433", "0x7f000001", "169.254.169.254", "[::1]", "[::ffff:127.0.0.1]", "[fe80::1]",
     "[fd00:ec2::254]", "[64:ff9b::a9fe:a9fe]", "localhost", "LOCALHOST.", "x.localhost", "metadata.google.internal",
     "inner.example"],
)  # fmt: skip
def test_the_proxy_is_asked_for_no_forbidden_address(fetch: Fetch, proxy: tuple[Proxy, Path], host: str) -> None:
    """Whatever it is written as, and also where every host is permitted."""
    with pytest.raises(EmbedderError, match="metadata service"):
        fetch(f"https://{host}/m")
    assert proxy[0].asked == []


def test_a_host_with_an_address_that_is_allowed_is_left_to_the_proxy(fetch: Fetch, proxy: tuple[Proxy, Path]) -> None:
    """Its name is resolved by the proxy, which has policies of its own."""
    with pytest.raises(EmbedderError):
        fetch("https://both.example/m", ca_file=None)
    assert proxy[0].asked[0] == "CONNECT both.example:443"


def test_a_host_of_no_proxy_is_connected_to_directly_under_the_whole_policy(
    fetch: Fetch, proxy: tuple[Proxy, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it is not among the hosts of the proxy."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    port = proxy[0]._server[1]
    with pytest.raises(EmbedderError, match="metadata service"):
        fetch(f"https://127.0.0.1:{port}/m", HOST)
    monkeypatch.setattr(fetch_addresses, "is_forbidden", lambda _address: False)
    fetch(f"https://127.0.0.1:{port}/m", HOST)
    assert proxy[0].asked == []


def test_an_authority_that_is_not_given_is_not_trusted(
    fetch: Fetch, proxy: tuple[Proxy, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables of the environment name none."""
    monkeypatch.setenv("SSL_CERT_FILE", str(proxy[1]))
    with pytest.raises(EmbedderError, match="ConnectError"):
        fetch(f"https://{HOST}/m", HOST, ca_file=None)


@pytest.fixture(autouse=True)
def one_attempt() -> Iterator[None]:
    """Retries follow each other at once, and end after two."""
    with stamina.set_testing(True, attempts=2, cap=True):
        yield


@pytest.mark.parametrize("content", ["", "no certificate"])
def test_a_file_without_certificates_is_named(tmp_path: Path, content: str) -> None:
    """Before anything is fetched."""
    file = tmp_path / "ca.crt"
    file.write_text(content)
    with pytest.raises(EmbedderError, match=r"ca\.crt has no certificates"):
        checked_transport(ca_file=file)
    with pytest.raises(EmbedderError, match="absent has no certificates"):
        checked_transport(ca_file=tmp_path / "absent")


def test_a_proxy_that_is_no_url_is_named_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """And its value, which may have a password, is not repeated."""
    monkeypatch.setenv("HTTPS_PROXY", "proxy-CANARY")
    with pytest.raises(EmbedderError, match="HTTPS_PROXY") as refused:
        checked_transport()
    assert "CANARY" not in str(refused.value)


def test_without_a_proxy_the_addresses_themselves_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with httpx.Client(transport=checked_transport()) as client, pytest.raises(EmbedderError, match="metadata service"):
        client.get("http://169.254.169.254/latest")
