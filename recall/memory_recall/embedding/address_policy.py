"""Decides whether texts, and whether the API key, may be sent to an address that is stored in the database.

After a model swap, memory servers read the address of the new model's embedder from the database. Without a check,
anybody who can write this address could have every query sent anywhere. Therefore the address is trusted only if its
host is that of the configured address, is listed in the configuration, or is a Service in the same Kubernetes namespace
as the configured one. A common parent domain proves nothing, since a name does not tell whether a domain such as
`example.org` or `co.uk` has one owner.

The API key is sent only to hosts that the configuration names. A Service that is trusted only because of its namespace
gets no key. An address without TLS is never used in place of one with TLS, even on a trusted host.

An address beyond the cluster needs consent, whatever speaks there: an embedder, a hosted provider of embeddings or a
language model. Near are this machine, addresses of private networks and Services of the cluster. What is sent to a
near address goes to it directly: a proxy that the environment names would read the texts, and may be anywhere.
"""

import ipaddress
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from memory_recall.errors import InvalidConfiguration

_LOOPBACK = "localhost"
_SERVICE = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")  # RFC 1035: no digit first, as in 2130706433, which is 127.0.0.1
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?\.svc(\.cluster\.local)?")
_METADATA = frozenset(map(ipaddress.ip_address, ("fd00:ec2::254", "fd20:ce::254")))  # in a private network of IPv6
_PRIVATE = [ipaddress.ip_network(one) for one in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")]


def is_trusted_embedder_url(configured: str, named: str, more_hosts: Iterable[str] = ()) -> bool:
    """Return whether texts may be sent to the URL `named`, given the configured URL and further trusted hosts."""
    if may_have_key(configured, named, more_hosts):
        return True
    ours, theirs = _parts(configured), _parts(named)
    if theirs is None or _drops_tls(ours, theirs):
        return False
    host = theirs[1]
    if ours is None:
        return host in more_hosts
    return _namespace(host) == _namespace(ours[1]) is not None


def may_have_key(configured: str, named: str, more_hosts: Iterable[str] = ()) -> bool:
    """Return whether the API key for the URL `configured` may be sent to the URL `named`.

    The host of `named` must be that of `configured` or one of `more_hosts`.
    """
    ours, theirs = _parts(configured), _parts(named)
    if ours is None or theirs is None or _drops_tls(ours, theirs):
        return False
    return theirs[1] == ours[1] or theirs[1] in more_hosts


def may_receive_texts(url: str, *, egress: bool) -> bool:
    """Return whether a configured address may get texts of queries and memories.

    `egress` says whether they may leave the cluster. An address outside of the cluster must have TLS, too.
    """
    parts = _parts(url)
    if parts is None:
        return False
    scheme, host = parts
    return _is_near(host) or (egress and scheme == "https")


def is_beyond_cluster(url: str) -> bool:
    """Return whether texts that are sent to a URL may leave the cluster; of what is no URL it is not known."""
    parts = _parts(url)
    return parts is None or not _is_near(parts[1])


def check_egress(url: str, receiver: str, *, egress: bool, hosted: bool) -> None:
    """Refuse to send texts to a receiver at a URL without consent. `hosted` says whether it passes them on.

    Raises:
        InvalidConfiguration: texts may not be sent there, or it is no http or https URL, or one with a user's name.
    """
    if _parts(url) is None:
        raise InvalidConfiguration(
            f"The URL of the {receiver} is none of http or https without a user's name.",
            "Give it as http://HOST:PORT, and a key as the API key.",
        )
    far = is_beyond_cluster(url)
    if (hosted or far) and not egress:
        why = (
            "it is beyond the cluster, neither on this machine, nor in a private network, nor a Service"
            if far
            else "its API is that of a hosted provider, to which it passes them on"
        )
        raise InvalidConfiguration(
            f"Texts may not be sent to the {receiver} at {url}: {why}.",
            f"Use another {receiver}, in the cluster; or allow it by MEMORY_QUERY_EGRESS=allowed "
            "(spec.embedding.queryEgress: Allowed), which is query_egress=True in Python.",
        )
    if far and not may_receive_texts(url, egress=True):
        raise InvalidConfiguration(
            f"Texts may not be sent to the {receiver} at {url} without TLS, since it is beyond the cluster.",
            "Use an https address.",
        )


def _is_near(host: str) -> bool:
    """Return whether the host is this machine, an address of a private network, or a Service of the cluster."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        service, _, namespace = host.partition(".")
        return bool(_SERVICE.fullmatch(service)) and (host == service or bool(_NAMESPACE.fullmatch(namespace)))
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    return address.is_loopback or (address not in _METADATA and any(address in network for network in _PRIVATE))


def _drops_tls(ours: tuple[str, str] | None, theirs: tuple[str, str]) -> bool:
    return ours is not None and ours[0] == "https" and theirs[0] != "https"


def _parts(url: str) -> tuple[str, str] | None:
    try:
        split = urlsplit(url)
        _ = split.port
    except ValueError:
        return None
    if split.scheme not in {"http", "https"} or not split.hostname or split.username is not None:
        return None
    return split.scheme, split.hostname


def _namespace(host: str) -> str | None:
    """Return the namespace part of a Service's host name, such as `team.svc`.

    Return "" for a host name without dots, and None for a host name that is not a Service's.
    """
    service, dot, namespace = host.partition(".")
    if not _SERVICE.fullmatch(service) or service == _LOOPBACK:
        return None
    if not dot:
        return ""
    return namespace if namespace.split(".")[1:2] == ["svc"] else None
