"""The addresses at which the embedder listens, and the names under which it serves its model."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from memory_embedder import server
from memory_embedder.cli import app
from memory_embedder.server import listen
from memory_embedder.settings import EmbedderSettings
from tests.unit.memory_embedder.conftest import Connect, MakeService

ALIASES = ["text-embedding-3-small", "sentence-transformers/all-MiniLM-L6-v2"]


@pytest.mark.finding("embedder 4")
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
@pytest.mark.finding("operator F8")
def test_it_is_reached_by_both_families_where_no_address_is_given(address: str) -> None:
    """A pod of a cluster with IPv6 alone has no other, and the kubelet asks its probes there."""
    with listen(EmbedderSettings().host, 0) as listening:
        socket.create_connection((address, listening.getsockname()[1]), timeout=10).close()


def test_a_machine_without_ipv6_is_served_by_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    create = socket.create_server

    def without_ipv6(address: Any, **options: Any) -> socket.socket:
        if options.get("family") == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return create(address, **options)

    monkeypatch.setattr(server.socket, "create_server", without_ipv6)
    with listen("::", 0) as listening:
        socket.create_connection(("127.0.0.1", listening.getsockname()[1]), timeout=10).close()


def test_a_given_address_is_the_only_one() -> None:
    with listen("127.0.0.1", 0) as listening, pytest.raises(ConnectionRefusedError):
        socket.create_connection(("::1", listening.getsockname()[1]), timeout=10)


@pytest.mark.finding("embedder 11")
async def test_a_model_is_found_by_its_name_and_each_alias_with_a_slash_too(
    make_service: MakeService, connect: Connect
) -> None:
    service = make_service(alias=ALIASES)
    service.load()
    async with connect(service) as client:
        cards = (await client.get("/v1/models")).json()["data"]
        assert [card["id"] for card in cards] == ["all-MiniLM-L6-v2", *ALIASES]
        assert len({json.dumps(card | {"id": ""}) for card in cards}) == 1
        for name in ("all-MiniLM-L6-v2", *ALIASES):
            answer = await client.post("/v1/embeddings", json={"input": "x", "model": name})
            assert (answer.status_code, answer.json()["model"]) == (200, "all-MiniLM-L6-v2")
            for path in (name, name.replace("/", "%2F")):
                assert (await client.get(httpx.URL(f"/v1/models/{path}"))).json()["id"] == name
        assert (await client.get("/v1/models/text-embedding-3")).status_code == 404
    assert await asyncio.to_thread(service.close)


def test_a_file_is_given_once() -> None:
    answer = CliRunner().invoke(app, ["serve", "one.gguf", "--model-file", "two.gguf"])
    assert answer.exit_code == 2
    assert "either as FILE or with --model-file" in " ".join(answer.output.replace("│", "").split())
