"""Whether an address that the database names may be trusted with texts.

After a swap the database says where the new model is served. Whoever can write that row could otherwise point it
anywhere, and have every query sent there. So an address is followed only within the neighbourhood of the one that was
configured: the same host, or another Service of the same namespace. Elsewhere a common parent domain proves nothing,
since nobody can tell from a name whether `example.org` or `co.uk` belongs to one owner.
"""

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

_SERVICE = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")  # RFC 1035: no digit first, as in 2130706433, which is 127.0.0.1


def trusted(configured: str, named: str, more_hosts: Iterable[str] = ()) -> bool:
    """Whether texts that go to `configured` may go to `named` as well; `more_hosts` are trusted in any domain."""
    mine, other = _parts(configured), _parts(named)
    if other is None:
        return False
    scheme, host = other
    if host in more_hosts:
        return True
    if mine is None or (mine[0] == "https" and scheme != "https"):
        return False
    return host == mine[1] or _namespace(host) == _namespace(mine[1]) is not None


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
    """The namespace of a Service's name, as `team.svc` or `team.svc.cluster.local`; empty for a bare name."""
    service, dot, namespace = host.partition(".")
    if not _SERVICE.fullmatch(service):
        return None
    if not dot:
        return ""
    return namespace if namespace.split(".")[1:2] == ["svc"] else None
