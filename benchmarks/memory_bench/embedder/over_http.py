"""Servers under test, called as a thin client calls them.

The client is the standard library's, one kept-alive connection a thread: a richer client would take a millisecond of
the very processors that are being measured. Bodies are made before the clock starts and vectors travel as base64.
"""

import base64
import http.client
import itertools
import json
import select
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np

from memory_bench.embedder.subject import DocumentLoad, Vectors, timed

_PATH = "/v1/embeddings"


class HttpSubject:
    """A server that speaks OpenAI's embeddings protocol; `lanes` = it takes `input_type` as well."""

    def __init__(self, name: str, port: int, *, lanes: bool) -> None:
        self._name = name
        self.port = port
        self._lanes = lanes
        self._query_connection = self.connect()

    @property
    def name(self) -> str:
        """As tables and charts call it."""
        return self._name

    def connect(self) -> http.client.HTTPConnection:
        """A kept-alive connection that sends at once."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def body(self, texts: Sequence[str], kind: str) -> bytes:
        """A request."""
        asked: dict[str, object] = {"input": list(texts), "encoding_format": "base64"}
        if self._lanes:
            asked["input_type"] = kind
        return json.dumps(asked).encode()

    def run_documents(self, load: DocumentLoad) -> float:
        """Threads take the next request as soon as they have the answer to their last."""
        bodies = [self.body(texts, "document") for texts in load.requests]
        connections = [self.connect() for _ in range(load.concurrency)]
        numbers = itertools.count()
        start = threading.Barrier(load.concurrency + 1)

        def work(connection: http.client.HTTPConnection) -> None:
            start.wait()
            while (number := next(numbers)) < len(bodies):
                post(connection, bodies[number])

        with ThreadPoolExecutor(load.concurrency) as pool:
            running = [pool.submit(work, connection) for connection in connections]

            def wait() -> None:
                start.wait()
                for one in running:
                    one.result()

            seconds = timed(wait)
        for connection in connections:
            connection.close()
        return seconds

    def run_query(self, text: str) -> float:
        """On a connection that is already open."""
        if _closed_by_server(self._query_connection):
            self._query_connection.close()
            self._query_connection = self.connect()
        body = self.body([text], "query")
        return timed(lambda: post(self._query_connection, body))

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """In the order of the texts."""
        with closing(self.connect()) as connection:
            answer = json.loads(post(connection, self.body(texts, "document")))
        items = sorted(answer["data"], key=lambda item: int(item["index"]))
        return np.array([np.frombuffer(base64.b64decode(item["embedding"]), "<f4") for item in items])


def _closed_by_server(connection: http.client.HTTPConnection) -> bool:
    """Whether it has ended: llama-server ends one after 100 requests, and one that is idle for 5 s."""
    return connection.sock is None or bool(select.select([connection.sock], [], [], 0)[0])


def post(connection: http.client.HTTPConnection, body: bytes) -> bytes:
    """The answer's body.

    Raises:
        RuntimeError: the server refused.
    """
    connection.request("POST", _PATH, body, {"content-type": "application/json"})
    answer = connection.getresponse()
    data = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"the server on port {connection.port} answered {answer.status}: {data[:300]!r}")
    return data
