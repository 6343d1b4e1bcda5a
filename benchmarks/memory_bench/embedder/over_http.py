"""A client of the measured servers, built on the HTTP client of the standard library.

Each thread keeps one connection open. A more elaborate client would use about a millisecond of processor time per
request, which the measured server would lack. Request bodies are made before the measurement begins, and vectors are
received as base64.
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
from memory_bench.servers import Server

_EMBEDDINGS = "/v1/embeddings"
_RERANK = "/v1/rerank"


class HttpSubject:
    """A measured server with OpenAI's embeddings interface; `lanes` says whether the server accepts `input_type`."""

    def __init__(self, name: str, server: Server, *, lanes: bool) -> None:
        self._name = name
        self.port = server.port
        self.probe_port = server.probe_port
        self._lanes = lanes
        self._query_connection = self.connect()

    @property
    def name(self) -> str:
        """The server's name in tables and charts."""
        return self._name

    def connect(self) -> http.client.HTTPConnection:
        """Open a connection without Nagle's algorithm, which would delay small requests."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def body(self, texts: Sequence[str], kind: str) -> bytes:
        """Return the JSON body of an embedding request; `kind` is "query" or "document"."""
        request: dict[str, object] = {"input": list(texts), "encoding_format": "base64"}
        if self._lanes:
            request["input_type"] = kind
        return json.dumps(request).encode()

    def run_documents(self, load: DocumentLoad) -> float:
        """Send all requests from concurrent threads; return the seconds from the first request to the last response."""
        return self._send([self.body(texts, "document") for texts in load.requests], _EMBEDDINGS, load.concurrency)

    def run_reranking(self, query: str, load: DocumentLoad) -> float:
        """Have the texts of each request scored by the query, as `run_documents` sends documents."""
        bodies = [json.dumps({"query": query, "documents": texts}).encode() for texts in load.requests]
        return self._send(bodies, _RERANK, load.concurrency)

    def _send(self, bodies: Sequence[bytes], path: str, concurrency: int) -> float:
        connections = [self.connect() for _ in range(concurrency)]
        numbers = itertools.count()
        start = threading.Barrier(concurrency + 1)

        def work(connection: http.client.HTTPConnection) -> None:
            start.wait()
            while (number := next(numbers)) < len(bodies):
                post(connection, bodies[number], path)

        with ThreadPoolExecutor(concurrency) as pool:
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
        """Send one query on an open connection; return the seconds until its response arrives."""
        if _closed_by_server(self._query_connection):
            self._query_connection.close()
            self._query_connection = self.connect()
        body = self.body([text], "query")
        return timed(lambda: post(self._query_connection, body))

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors that the server computes for the texts, in the order of the texts."""
        with closing(self.connect()) as connection:
            answer = json.loads(post(connection, self.body(texts, "document")))
        items = sorted(answer["data"], key=lambda item: int(item["index"]))
        return np.array([np.frombuffer(base64.b64decode(item["embedding"]), "<f4") for item in items])


def _closed_by_server(connection: http.client.HTTPConnection) -> bool:
    """Return whether the server has closed the connection; llama-server does so after 100 requests or 5 s of idling."""
    return connection.sock is None or bool(select.select([connection.sock], [], [], 0)[0])


def post(connection: http.client.HTTPConnection, body: bytes, path: str = _EMBEDDINGS) -> bytes:
    """Send a request for embeddings, or to another path, and return the body of the response.

    Raises:
        RuntimeError: the status of the response is not 200.
    """
    connection.request("POST", path, body, {"content-type": "application/json"})
    answer = connection.getresponse()
    data = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"the server on port {connection.port} answered {answer.status}: {data[:300]!r}")
    return data
