"""Who may hold connections to a local page, and for how long."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from memory_recall.contrib.local_page import connections
from memory_recall.contrib.local_page.server import serve_locally

HALF = b"GET /screen HTTP/1.1\r\nHost: evil.example\r\n"


async def screen(_: Request) -> PlainTextResponse:
    return PlainTextResponse("the screen")


@pytest.fixture
async def url() -> AsyncIterator[str]:
    addresses: asyncio.Queue[str] = asyncio.Queue()
    page = Starlette(routes=[Route("/screen", screen)])
    task = asyncio.create_task(serve_locally(lambda _: page, port=0, announce=addresses.put_nowait))
    async with asyncio.timeout(30):
        yield await addresses.get()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def connected(url: str, sent: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = url.split("/")[2].partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(sent)
    await writer.drain()
    return reader, writer


async def shown(url: str) -> bytes:
    host, token = url.split("/")[2:4]
    reader, writer = await connected(url, f"GET /{token}/screen HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    answer = await reader.readuntil(b"the screen")
    writer.close()
    return answer


async def is_closed(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


@pytest.mark.promise("page-connections-bounded")
@pytest.mark.finding("security L8")
@pytest.mark.parametrize("sent", [b"", HALF])
async def test_half_sent_requests_keep_the_pages_user_not_out(url: str, sent: bytes) -> None:
    """As any web site that the user's browser shows can send them."""
    async with asyncio.timeout(30):
        await shown(url)
        opened = [await connected(url, sent) for _ in range(2 * connections.MOST_CONNECTIONS)]
        assert b" 200 " in await shown(url)
        assert await is_closed(opened[0][0])
        for _, writer in opened:
            writer.close()


@pytest.mark.promise("page-connections-bounded")
@pytest.mark.finding("security L8")
@pytest.mark.parametrize("first", [b"", b"GET /screen HTTP/1.1\r\nHost: evil.example\r\n\r\n"], ids=["first", "second"])
async def test_the_head_of_a_request_must_come_in_time(url: str, first: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the first request of a connection, and that of the next."""
    monkeypatch.setattr(connections, "_HEAD_SECONDS", 0.05)
    async with asyncio.timeout(30):
        reader, writer = await connected(url, first)
        if first:
            await reader.readuntil(b"its own address only.")
        writer.write(HALF)
        assert await is_closed(reader)
        writer.close()
