"""Objects are read from the API server of a node, whatever becomes of it meanwhile."""

import socket
import threading
from http.client import HTTPConnection
from typing import Any

import pytest

from devcluster.drivers import node
from devcluster.drivers.node import NodeCluster
from devcluster.errors import DevclusterError

_BEGUN = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n10\r\n{"


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200", _BEGUN], ids=["none", "part of a head", "part of a body"])
def test_an_api_server_that_is_killed_in_its_answer_counts_as_unreachable(
    answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(answer)

        def plain(address: str, *, context: object, timeout: float) -> HTTPConnection:
            return HTTPConnection(address, timeout=timeout)

        monkeypatch.setattr(node, "HTTPSConnection", plain)
        cluster: Any = object.__new__(NodeCluster)
        cluster.__dict__.update(name="killed", _client=(f"127.0.0.1:{listening.getsockname()[1]}", None))
        serving = threading.Thread(target=serve)
        serving.start()
        with pytest.raises(DevclusterError, match="API server of killed cannot be reached"):
            cluster.read("/api/v1/pods")
        serving.join()
