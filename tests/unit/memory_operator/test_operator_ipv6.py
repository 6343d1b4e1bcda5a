"""The operator asks servers that have IPv6 alone, over real sockets, and judges their addresses as it does IPv4."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from memory_operator.clients.http import HttpClient, NoAnswerError, opened
from memory_operator.reconcile.authorization.addresses import is_forbidden
from memory_operator.resources import embedder
from tests.support.loopback_server import LoopbackServer
from tests.unit.memory_operator.conftest import World


class Echo(LoopbackServer):
    """Answers each request with its head, on an address of IPv6."""

    host = "::1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(head), head))
        await writer.drain()


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    async with Echo() as serving:
        yield serving


async def asked(client: HttpClient, url: str, *addresses: str) -> str:
    return (await client.send(url, {}, addresses)).body.decode()


@pytest.mark.finding("operator F8")
async def test_pods_and_embedders_with_ipv6_alone_are_asked(echo: Echo) -> None:
    async with opened(lambda _address: True) as client:
        assert f"Host: [::1]:{echo.port}\r\n" in await asked(client, f"http://[::1]:{echo.port}/metrics")
        named = await asked(client, f"http://mem-embedder.team.svc:{echo.port}/v1/models", "::1")
        assert f"Host: mem-embedder.team.svc:{echo.port}\r\n" in named


async def test_an_address_of_the_second_family_is_tried_where_the_first_does_not_answer(echo: Echo) -> None:
    async with opened(lambda _address: True) as client:
        assert "/x" in await asked(client, f"http://mem.team.svc:{echo.port}/x", "127.0.0.1", "::1")


@pytest.mark.promise("services-and-listed-hosts")
@pytest.mark.parametrize("host", ["::1", "::ffff:127.0.0.1", "fe80::1", "fd00:ec2::254", "::"])
async def test_no_socket_is_opened_to_a_forbidden_address_of_ipv6(echo: Echo, host: str) -> None:
    async with opened(lambda address: not is_forbidden(address)) as client:
        with pytest.raises(NoAnswerError, match="does not connect to"):
            await client.send(f"http://[{host}]:{echo.port}/metrics", {})


@pytest.mark.finding("operator F8")
def test_the_embedders_service_has_an_address_of_each_family_of_the_cluster(world: World) -> None:
    assert embedder.service(world.index())["spec"]["ipFamilyPolicy"] == "PreferDualStack"
