"""Keeps downloads away from addresses of this machine, of its link and of metadata services.

The address of a model file is chosen by the author of an object, who may not reach all that the pod that fetches can. A
host is resolved here, and the connection is made to the address that was checked, so a second answer of the name server
changes nothing.

A proxy resolves names itself, and it may reach what this pod does not. So a request goes to it only if its host is one
that was permitted, where any were listed, is no forbidden address and no name of this machine or of a metadata service,
and does not lead to forbidden addresses alone as far as names are resolved here.
"""

import socket
from collections.abc import Callable, Iterable, Mapping
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.request import proxy_bypass_environment  # type: ignore[attr-defined]  # not in the stubs

import httpx

from memory_embedder.errors import EmbedderError, ErrorKind, configuration_error

_NAT64 = IPv6Network("64:ff9b::/96")  # an IPv4 address in the last 32 bits, to which a gateway connects
_METADATA = frozenset({"100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"})
# Forms of IPv6 that stand for IPv4 addresses in another network: compatible, translated, local NAT64, Teredo, 6to4.
_TUNNELS = ("::/96", "::ffff:0:0:0/96", "64:ff9b:1::/48", "2001::/32", "2002::/16")
_LOCAL = ("0.0.0.0/8", "169.254.0.0/16", "fe80::/10", "fec0::/10")
_LOCAL_NAMES = ("localhost", "metadata", "metadata.google.internal", "instance-data")
_NETWORKS = [ip_network(one) for one in (*_TUNNELS, *_LOCAL)]

Lookup = Callable[[str], list[str]]


def is_forbidden(address: str) -> bool:
    """Return whether nothing is fetched from this IP address. The operator connects to none of these, either."""
    found = _translated(ip_address(address.partition("%")[0]))
    special = found.is_loopback or found.is_link_local or found.is_unspecified or found.is_multicast
    networks = any(found in network for network in _NETWORKS if network.version == found.version)
    return special or networks or str(found) in _METADATA


def system_lookup(host: str) -> list[str]:
    """Return the addresses of a host by the system's resolver."""
    return [str(item[4][0]) for item in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]


class CheckedTransport(httpx.BaseTransport):
    """Sends requests to the first address of their host that is not forbidden, over another transport."""

    def __init__(self, transport: httpx.BaseTransport, lookup: Lookup = system_lookup) -> None:
        self._transport = transport
        self._lookup = lookup

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request, with the certificate still compared with the name of the host."""
        host = request.url.host
        return self._transport.handle_request(
            httpx.Request(
                request.method,
                request.url.copy_with(host=self._address(host)),
                headers=request.headers,
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": host},
            )
        )

    def close(self) -> None:
        """Close the other transport."""
        self._transport.close()

    def _address(self, host: str) -> str:
        try:
            found = self._lookup(host)
        except (OSError, UnicodeError):
            raise httpx.ConnectError("the host has no address") from None
        allowed = [address for address in found if not is_forbidden(address)]
        if not allowed:
            raise _forbidden()
        return allowed[0]


class ProxiedTransport(httpx.BaseTransport):
    """Sends requests through the proxies of the environment, and those to hosts of NO_PROXY directly.

    `proxies` are URLs by scheme, as `urllib.request.getproxies` returns them. Without `permitted` hosts every host is
    permitted; a leading dot stands for every name below.
    """

    def __init__(
        self,
        direct: httpx.BaseTransport,
        proxies: Mapping[str, str],
        make: Callable[[str], httpx.BaseTransport],
        *,
        permitted: Iterable[str] = (),
        lookup: Lookup = system_lookup,
    ) -> None:
        self._direct = direct
        self._proxies = dict(proxies)
        self._permitted = tuple(host.lower() for host in permitted)
        self._lookup = lookup
        try:
            self._through = {url: make(url) for scheme, url in proxies.items() if scheme in {"http", "https", "all"}}
        except (ValueError, httpx.InvalidURL):
            raise configuration_error(
                "HTTPS_PROXY or HTTP_PROXY is no URL of a proxy; write http://HOST:PORT."
            ) from None

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request through the proxy for its scheme, if there is one and the host does not bypass it."""
        host = request.url.host.lower().rstrip(".")
        proxy = self._proxies.get(request.url.scheme) or self._proxies.get("all")
        if not proxy or proxy_bypass_environment(host, self._proxies):
            return self._direct.handle_request(request)
        self._check(host)
        return self._through[proxy].handle_request(request)

    def close(self) -> None:
        """Close the other transports."""
        for transport in (self._direct, *self._through.values()):
            transport.close()

    def _check(self, host: str) -> None:
        if self._permitted and not any(_is_below(host, one) for one in self._permitted):
            raise EmbedderError(
                ErrorKind.MODEL_NOT_FETCHED,
                "The model file's URL, or one that it redirects to, has a host that may not be fetched from by proxy; "
                "have it added to fetch.proxy.hosts of the operator's chart.",
            )
        if host in _LOCAL_NAMES or host.endswith(".localhost"):
            raise _forbidden()
        try:
            found = self._lookup(host)
        except (OSError, UnicodeError):
            return  # often only the proxy resolves names of the internet
        if all(is_forbidden(address) for address in found):
            raise _forbidden()


def _is_below(host: str, listed: str) -> bool:
    return host == listed or (listed.startswith(".") and host.endswith(listed))


def _forbidden() -> EmbedderError:
    return EmbedderError(
        ErrorKind.MODEL_NOT_FETCHED,
        "The model file's host has only addresses of this machine, of its link or of a metadata service; "
        "check the URL.",
    )


def _translated(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address inside an IPv4-mapped or NAT64 IPv6 address; return any other address unchanged."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped:
        return address.ipv4_mapped
    return IPv4Address(int(address) & 0xFFFFFFFF) if address in _NAT64 else address
