"""Decides whether texts may be sent to an embedder's address that the database names.

After a model swap the database names the address of the new model's embedder. Whoever can write that row could
otherwise have every query sent anywhere. So the address is trusted only if it has the configured address's host, or is
another Service of the same Kubernetes namespace. A common parent domain proves nothing, since a name does not tell
whether a domain such as `example.org` or `co.uk` has one owner.
"""

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

_SERVICE = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")  # RFC 1035: no digit first, as in 2130706433, which is 127.0.0.1


def is_trusted_embedder_url(configured: str, named: str, more_hosts: Iterable[str] = ()) -> bool:
    """Return whether texts may go to the URL `named`, given the configured URL and further trusted hosts."""
    ours, theirs = _parts(configured), _parts(named)
    if theirs is None:
        return False
    scheme, host = theirs
    if host in more_hosts:
        return True
    if ours is None or (ours[0] == "https" and scheme != "https"):
        return False
    return host == ours[1] or _namespace(host) == _namespace(ours[1]) is not None


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
    """Return the namespace part of a Service's host name, such as `team.svc`; "" for a host without dots, else None."""
    service, dot, namespace = host.partition(".")
    if not _SERVICE.fullmatch(service):
        return None
    if not dot:
        return ""
    return namespace if namespace.split(".")[1:2] == ["svc"] else None
