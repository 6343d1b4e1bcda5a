"""Send requests to servers that the operator does not trust: external embedders and embedder pods.

Each request has a total time limit, and each answer has a size limit. Answers are never decompressed, and redirects are
not followed. No host name is resolved here: the caller gives the addresses of the URL's host, and each is checked once
more when its socket is created.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

TIMEOUT_SECONDS = 5.0
MOST_BYTES = 1024 * 1024
_CHUNK = 64 * 1024
_MOST_CONTEXTS = 64  # of authorities, each with some hundred kilobytes of certificates

Permits = Callable[[str], bool]


@dataclass(frozen=True)
class Answer:
    """The status code and body of an HTTP answer."""

    code: int
    body: bytes


class NoAnswerError(Exception):
    """No usable answer came. The message says why and quotes nothing from the server."""


class NotVerifiedError(NoAnswerError):
    """The server's certificate was not accepted. The message is one of OpenSSL's, such as that it has expired."""


class _ForbiddenAddressError(OSError):
    """The operator may not connect to the address of a socket. The message does not name the address."""

    def __init__(self) -> None:
        super().__init__("this address may not be connected to")


class HttpClient:
    """Sends requests within limits of time and size."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._tls_context = lru_cache(maxsize=_MOST_CONTEXTS)(_tls_context)

    async def send(
        self,
        url: str,
        headers: Mapping[str, str],
        addresses: Sequence[str] = (),
        *,
        body: object = None,
        certificates: str = "",
    ) -> Answer:
        """Send a request to one of the addresses of the URL's host and return the answer.

        The request is a GET, or with a `body` a POST of this body as JSON. Without addresses, the URL must have an IP
        address in place of a host name. `certificates` are those of an authority that verifies the server beside the
        public ones.

        Raises:
            NoAnswerError: no answer came within the limits of time and size, or the address is forbidden.
        """
        host, context = urlsplit(url).hostname or "", self._tls_context(certificates)
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                for address in addresses[:-1]:
                    try:
                        return await self._send_to(url, headers, host, address, body, context)
                    except aiohttp.ClientConnectorError:
                        continue
                return await self._send_to(url, headers, host, addresses[-1] if addresses else host, body, context)
        except TimeoutError:
            raise NoAnswerError(f"it took longer than {TIMEOUT_SECONDS:g} s") from None
        except aiohttp.ClientConnectorCertificateError as error:
            why = getattr(error.certificate_error, "verify_message", "") or "its certificate is not that of the host"
            raise NotVerifiedError(why) from None
        except aiohttp.ClientConnectorError as error:
            forbidden = isinstance(error.os_error, _ForbiddenAddressError)
            why = "its address is one that the operator does not connect to" if forbidden else "no connection"
            raise NoAnswerError(why) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NoAnswerError(type(error).__name__) from None

    async def _send_to(  # noqa: PLR0917  (called in one place, by position)
        self, url: str, headers: Mapping[str, str], host: str, address: str, body: object, context: ssl.SSLContext
    ) -> Answer:
        sent = {**headers, "Host": urlsplit(url).netloc, "Accept-Encoding": "identity"}
        target = URL(url).with_host(address)
        async with self._session.request(
            "GET" if body is None else "POST",
            target,
            headers=sent,
            json=body,
            allow_redirects=False,
            server_hostname=host if target.scheme == "https" else None,
            ssl=context,
        ) as response:
            return Answer(response.status, await _body(response))


def _tls_context(certificates: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if certificates:
        context.load_verify_locations(cadata=certificates)
    return context


class _NoNames(AbstractResolver):
    """Resolves nothing, because every address is found before a request is sent."""

    async def resolve(self, *_: object, **__: object) -> list[Any]:
        """Refuse to resolve a name."""
        raise OSError

    async def close(self) -> None:
        """Do nothing."""


@asynccontextmanager
async def opened(permits: Permits) -> AsyncIterator[HttpClient]:
    """Open a client that connects only to addresses for which `permits` returns True."""
    connector = aiohttp.TCPConnector(socket_factory=partial(_socket, permits), resolver=_NoNames())
    async with aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
    ) as session:
        yield HttpClient(session)


def _socket(permits: Permits, info: tuple[Any, Any, int, str, tuple[Any, ...]]) -> socket.socket:
    family, kind, protocol, _, target = info
    if not permits(str(target[0])):
        raise _ForbiddenAddressError
    return socket.socket(family=family, type=kind, proto=protocol)


async def _body(response: aiohttp.ClientResponse) -> bytes:
    found = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK):
        found += chunk
        if len(found) > MOST_BYTES:
            raise NoAnswerError(f"its answer is longer than {MOST_BYTES // 1024} KiB")
    return bytes(found)
