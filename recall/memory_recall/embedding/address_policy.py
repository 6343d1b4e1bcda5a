"""Decide whether texts, and whether the API key, may be sent to an address that the database names.

After a swap the database names the address of the new model's embedder. Whoever can write that row could otherwise have
every query sent anywhere. So an address is followed only if it has the configured address's host, or is another Service
of the same namespace. A common parent domain proves nothing, since a name does not tell whether a domain such as
`example.org` or `co.uk` has one owner.

The API key goes to fewer addresses: to hosts that the configuration itself names, never to one that is trusted only as
a neighbour. An address without TLS is not followed from one with it, whoever trusts the host.
"""

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

_LOOPBACK = "localhost"
_SERVICE = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")  # RFC 1035: no digit first, as in 2130706433, which is 127.0.0.1


def is_trusted_embedder_url(configured: str, named: str, more_hosts: Iterable[str] = ()) -> bool:
    """Tell whether texts that go to the URL `configured` may go to `named`; `more_hosts` are trusted as well."""
    if may_have_key(configured, named, more_hosts):
        return True
    mine, other = _parts(configured), _parts(named)
    if other is None or _drops_tls(mine, other):
        return False
    if mine is None:
        return other[1] in more_hosts
    return _namespace(other[1]) == _namespace(mine[1]) is not None


def may_have_key(configured: str, named: str, more_hosts: Iterable[str] = ()) -> bool:
    """Tell whether the API key for the URL `configured` may go to `named`: the same host, or one of `more_hosts`."""
    mine, other = _parts(configured), _parts(named)
    if mine is None or other is None or _drops_tls(mine, other):
        return False
    return other[1] == mine[1] or other[1] in more_hosts


def _drops_tls(mine: tuple[str, str] | None, other: tuple[str, str]) -> bool:
    return mine is not None and mine[0] == "https" and other[0] != "https"


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
    """Return the namespace part of a Service's name, such as `team.svc`; empty for a bare name, else None."""
    service, dot, namespace = host.partition(".")
    if not _SERVICE.fullmatch(service) or service == _LOOPBACK:
        return None
    if not dot:
        return ""
    return namespace if namespace.split(".")[1:2] == ["svc"] else None
