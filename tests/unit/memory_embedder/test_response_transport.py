"""The head of a response is sent together with the beginning of its body, and nothing is kept back for longer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from memory_embedder.http.transport import ResponseTransport

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"


class Recorder(asyncio.Transport):
    """A transport that records what is written, and that it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[bytes | str] = []

    def write(self, data: Any) -> None:
        self.calls.append(bytes(data))

    def close(self) -> None:
        self.calls.append("close")

    def abort(self) -> None:
        self.calls.append("abort")


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def transport(recorder: Recorder) -> ResponseTransport:
    return ResponseTransport(recorder)


def test_head_and_first_piece_are_one_write_and_each_further_piece_is_written_at_once(
    recorder: Recorder, transport: ResponseTransport
) -> None:
    for _ in range(2):
        recorder.calls.clear()
        transport.write(HEAD)
        assert recorder.calls == []
        transport.write(b"ok")
        assert recorder.calls == [HEAD + b"ok"]
        transport.write(HEAD)  # a piece of the body, whatever it looks like
        transport.write(b"")
        assert recorder.calls == [HEAD + b"ok", HEAD, b""]
        transport.end_response()


def test_the_permission_to_go_on_is_written_at_once_and_the_head_after_it_with_the_body(
    recorder: Recorder, transport: ResponseTransport
) -> None:
    transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert recorder.calls == [b"HTTP/1.1 100 Continue\r\n\r\n"]
    transport.write(HEAD)
    transport.write(b"ok")
    assert recorder.calls[1:] == [HEAD + b"ok"]


def test_a_head_without_a_body_is_written_at_the_end_of_the_response(
    recorder: Recorder, transport: ResponseTransport
) -> None:
    transport.write(HEAD)
    transport.end_response()
    transport.end_response()
    assert recorder.calls == [HEAD]


def test_a_head_without_a_body_is_written_before_the_connection_closes_and_dropped_if_it_is_aborted(
    recorder: Recorder, transport: ResponseTransport
) -> None:
    transport.write(HEAD)
    transport.close()
    transport.end_response()
    transport.write(HEAD)
    transport.abort()
    assert recorder.calls == [HEAD, "close", "abort"]
