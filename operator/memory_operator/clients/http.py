"""Send requests to servers that the operator does not trust: external embedders and embedder pods.

Each request has a total time limit, and each answer has a size limit. Answers are never decompressed, and redirects are
not followed. An address is checked when its socket is created, after the host name has been resolved. Therefore no host
name can lead to a loopback address, the metadata service of the node or the Kubernetes API server.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any
from urllib.parse import urlsplit

import aiohttp

TIMEOUT_SECONDS = 5.0
MOST_BYTES = 1024 * 1024
_CHUNK = 64 * 1024
_NAT64 = IPv6Network("64:ff9b::/96")  # an IPv4 address in the last 32 bits, to which a gateway connects

Permits = Callable[[str], bool]


@dataclass(frozen=True)
class Answer:
    """The status code and body of an HTTP answer."""

    code: int
    body: bytes


class NoAnswerError(Exception):
    """No usable answer came. The message says why and quotes nothing from the server."""


class _ForbiddenAddressError(OSError):
    """The operator may not connect to the address of a socket. The message does not name the address."""

    def __init__(self) -> None:
        super().__init__("this address may not be connected to")


class HttpClient:
    """Sends GET requests within limits of time and size."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def get(self, url: str, headers: Mapping[str, str]) -> Answer:
        """Send a GET request and return the answer.

        Raises:
            NoAnswerError: no answer came within the limits of time and size, or the address is forbidden.
        """
        try:
            async with self._session.get(
                url, headers={**headers, "Accept-Encoding": "identity"}, allow_redirects=False
            ) as response:
                return Answer(response.status, await _body(response))
        except TimeoutError:
            raise NoAnswerError(f"it took longer than {TIMEOUT_SECONDS:g} s") from None
        except aiohttp.ClientConnectorError as error:
            forbidden = isinstance(error.os_error, _ForbiddenAddressError)
            why = "its address is one that the operator does not connect to" if forbidden else type(error).__name__
            raise NoAnswerError(why) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise NoAnswerError(type(error).__name__) from None


@asynccontextmanager
async def opened(permits: Permits) -> AsyncIterator[HttpClient]:
    """Open a client that connects only to addresses for which `permits` returns True."""
    connector = aiohttp.TCPConnector(socket_factory=partial(_socket, permits))
    async with aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
    ) as session:
        yield HttpClient(session)


def may_be_called(address: str, *, api_server: frozenset[str] = frozenset()) -> bool:
    """Return whether the operator may connect to the address. Addresses in private ranges are accepted.

    Loopback, link-local, unspecified and multicast addresses are rejected, and the addresses in `api_server` too.
    """
    found = _translated(ip_address(address.partition("%")[0]))
    special = found.is_link_local or found.is_loopback or found.is_unspecified or found.is_multicast
    return not special and str(found) not in api_server


async def addresses_of(url: str) -> frozenset[str]:
    """Return the IP addresses of a URL's host, or an empty set if the host name cannot be resolved."""
    host = urlsplit(url).hostname
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return frozenset()
    return frozenset(str(_translated(ip_address(str(item[4][0]).partition("%")[0]))) for item in found)


def _translated(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address inside an IPv4-mapped or NAT64 IPv6 address; return any other address unchanged."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped:
        return address.ipv4_mapped
    return IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else address


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
