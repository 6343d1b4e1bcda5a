"""Ports that tests give to programs."""

import socket

import pytest

from tests.support.ports import reserved_ports


def test_a_reserved_port_can_be_listened_on_again_and_again_and_is_refused_to_others() -> None:
    with reserved_ports(2) as ports:
        assert len(set(ports)) == 2
        for _ in range(2):
            with socket.create_server(("127.0.0.1", ports[0])) as server, socket.socket() as client:
                client.connect(server.getsockname())
        with socket.socket() as other, pytest.raises(OSError, match="already in use"):
            other.bind(("127.0.0.1", ports[0]))
