"""Probes components for readiness. A component counts as ready only after a success; an error means not ready yet."""

import http.client
import socket
import ssl
from urllib.parse import urlsplit

from devcluster.node.components import Probe

_TIMEOUT = 2.0


def is_ready(probe: Probe) -> bool:
    """Probe once, and return whether the component is ready.

    The result for a task is always False, because only its parent process can see that it has ended.
    """
    try:
        if probe.kind == "socket":
            return _accepts(probe.target)
        return probe.kind == "http" and _answers(probe.target)
    except (OSError, http.client.HTTPException):
        return False


def _accepts(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_TIMEOUT)
        connection.connect(path)
    return True


def _answers(url: str) -> bool:
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 80
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        # A loopback address of a namespace that nobody else is in; several components sign their own certificate.
        connection = http.client.HTTPSConnection(host, port, timeout=_TIMEOUT, context=ssl._create_unverified_context())  # noqa: S323
    else:
        connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT)
    try:
        connection.request("GET", parts.path)
        return connection.getresponse().status == http.client.OK
    finally:
        connection.close()
