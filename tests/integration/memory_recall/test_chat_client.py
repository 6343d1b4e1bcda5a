"""The client of a language model sends its text and nothing else, to where it may, and bounds what it gets back."""

import asyncio
import gzip
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from memory_recall.contrib.chat_client import ChatClient
from memory_recall.embedding.address_policy import may_receive_texts
from memory_recall.errors import (
    EmbedderBroken,
    EmbedderRejected,
    EmbedderUnauthorized,
    EmbedderUnavailable,
    InvalidConfiguration,
    MemoryIndexError,
)
from tests.integration.memory_recall.chat_server import ChatServer, likely, said
from tests.integration.memory_recall.fake_embedder import Answer

CANARY = "query-canary"


@pytest.fixture
async def server() -> AsyncIterator[ChatServer]:
    async with ChatServer() as running:
        yield running


async def ask(client: ChatClient) -> str:
    return await client.complete("Name words.", CANARY, most_tokens=9)


async def test_a_request_holds_the_model_the_instruction_and_the_text_and_nothing_else(server: ChatServer) -> None:
    async with ChatClient(f"{server.url}/", "tiny-chat", "key-canary") as client:
        assert await ask(client) == "copy, snapshot"
    messages = [{"role": "system", "content": "Name words."}, {"role": "user", "content": CANARY}]
    assert server.bodies == [{"model": "tiny-chat", "messages": messages, "max_tokens": 9, "temperature": 0}]
    assert b"authorization: bearer key-canary" in server.heard.lower()


async def test_a_request_for_the_first_token_holds_the_examples_as_turns_before_the_text(server: ChatServer) -> None:
    server.answer = likely(Yes=0.75, No=0.25)
    async with ChatClient(server.url, "tiny-chat") as client:
        found = await client.first_token("Say Yes or No.", [("one", "Yes"), ("two", "No")], CANARY)
    assert found == {"Yes": pytest.approx(0.75), "No": pytest.approx(0.25)}
    turns = ["system", "user", "assistant", "user", "assistant", "user"]
    texts = ["Say Yes or No.", "one", "Yes", "two", "No", CANARY]
    messages = [{"role": role, "content": text} for role, text in zip(turns, texts, strict=True)]
    assert server.bodies == [
        {
            "model": "tiny-chat", "messages": messages, "temperature": 0,
            "max_tokens": 1, "logprobs": True, "top_logprobs": 20,
        }
    ]  # fmt: skip


async def test_nothing_of_the_texts_is_sent_once_what_is_awaited_on_the_connection_refuses(server: ChatServer) -> None:
    """It is awaited when the server has the headers, however long the connection took."""

    async def refuse() -> None:
        raise KeyError("withheld")

    async with ChatClient(server.url, "tiny-chat") as client:
        with pytest.raises(KeyError, match="withheld"):
            await client.first_token("Say Yes or No.", [], CANARY, before_sending=refuse)
    assert CANARY.encode() not in server.heard


@pytest.mark.parametrize(
    "given", ["null", '{"content": []}', '{"content": [{"token": "copy"}]}', "NaN", '"copy"', "-1e999"]
)
async def test_an_answer_that_does_not_say_how_likely_its_tokens_are_is_an_error(
    server: ChatServer, given: str
) -> None:
    """Where the server has no such numbers, or where one of them is none."""
    if given in {"NaN", '"copy"'}:
        given = f'{{"content": [{{"top_logprobs": [{{"token": "copy", "logprob": {given}}}]}}]}}'
    server.answer = (200, {}, f'{{"choices": [{{"logprobs": {given}}}]}}'.encode())
    async with ChatClient(server.url, "tiny-chat") as client:
        with pytest.raises(EmbedderBroken) as raised:
            await client.first_token("Say Yes or No.", [], CANARY)
    assert "canary" not in str(raised.value)
    assert "copy" not in str(raised.value)


async def test_a_token_that_never_comes_or_is_as_likely_as_can_be_is_no_error(server: ChatServer) -> None:
    """Some servers round a certain token to slightly more than certain, and write minus infinity for the others."""
    tokens = '[{"token": "Yes", "logprob": 1e-7}, {"token": "No", "logprob": -Infinity}]'
    server.answer = (
        200,
        {},
        f'{{"choices": [{{"logprobs": {{"content": [{{"top_logprobs": {tokens}}}]}}}}]}}'.encode(),
    )
    async with ChatClient(server.url, "tiny-chat") as client:
        assert await client.first_token("Say Yes or No.", [], CANARY) == {"Yes": 1.0, "No": 0.0}


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "-1"}, 0.0),
        ({}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "Fri, 27 Nov 2026 07:28:00 GMT"}, None),
    ],
)
async def test_the_time_that_a_busy_server_names_reaches_whoever_asks_again(
    server: ChatServer, status: int, header: dict[str, str], seconds: float | None
) -> None:
    """As far as it is a number of seconds; anything else leaves the delay to the caller."""
    server.answer = (status, header, b"{}")
    async with ChatClient(server.url, "tiny-chat") as client:
        with pytest.raises(EmbedderUnavailable) as raised:
            await ask(client)
    assert raised.value.retry_after == seconds


async def test_a_key_in_a_file_is_read_for_each_request(server: ChatServer, tmp_path: Path) -> None:
    file = tmp_path / "key"
    async with ChatClient(server.url, "tiny-chat", file) as client:
        with pytest.raises(EmbedderUnauthorized):
            await ask(client)
        assert server.requests == 0
        file.write_text("key-canary\n")
        await ask(client)
    assert b"authorization: bearer key-canary\r\n" in server.heard.lower()


ANSWERS: list[tuple[str, Answer, type[MemoryIndexError]]] = [
    ("no key", (401, {}, b"{}"), EmbedderUnauthorized),
    ("forbidden", (403, {}, b"{}"), EmbedderUnauthorized),
    ("no such model", (404, {}, b"{}"), EmbedderRejected),
    ("too long", (413, {}, b"{}"), EmbedderRejected),
    ("busy", (429, {}, b"{}"), EmbedderUnavailable),
    ("broken", (500, {}, b"{}"), EmbedderUnavailable),
    ("no JSON", (200, {}, b"<html>"), EmbedderBroken),
    ("no UTF-8", (200, {}, b"\xff\xfe\xff"), EmbedderBroken),
    ("a list", (200, {}, b"[]"), EmbedderBroken),
    ("nested", (200, {}, b"[" * 60_000), EmbedderBroken),
    ("no choice", (200, {}, b'{"choices": []}'), EmbedderBroken),
    ("no text", said(None), EmbedderBroken),
    ("parts", said([{"type": "text", "text": "copy"}]), EmbedderBroken),
    ("endless", said("copy, " * 20_000), EmbedderBroken),
    ("compressed", (200, {"content-encoding": "gzip"}, gzip.compress(said("copy")[2])), EmbedderBroken),
]


@pytest.mark.parametrize(("answer", "error"), [case[1:] for case in ANSWERS], ids=[case[0] for case in ANSWERS])
async def test_what_is_no_answer_of_a_chat_is_an_error_that_quotes_neither_text_nor_answer(
    server: ChatServer, answer: Answer, error: type[MemoryIndexError], caplog: pytest.LogCaptureFixture
) -> None:
    """Nor does any line of the log, at whatever level."""
    caplog.set_level(logging.DEBUG)
    server.answer = answer
    async with ChatClient(server.url, "tiny-chat", "key-canary") as client:
        with pytest.raises(error) as raised:
            await ask(client)
    told = str(raised.value) + caplog.text
    assert "canary" not in told
    assert "copy" not in told


async def test_a_redirect_is_not_followed(server: ChatServer) -> None:
    """It could lead out of the cluster."""
    async with ChatServer() as elsewhere, ChatClient(server.url, "tiny-chat", "key-canary") as client:
        server.answer = (307, {"location": f"{elsewhere.url}/v1/chat/completions"}, b"")
        with pytest.raises(EmbedderRejected, match="307"):
            await ask(client)
        assert (server.requests, elsewhere.heard) == (1, b"")


async def test_a_server_that_is_gone_or_hangs_up_is_unavailable(server: ChatServer) -> None:
    async with ChatClient(server.url, "tiny-chat") as client:
        server.hold_after(0)
        waiting = asyncio.create_task(ask(client))
        await server.arrived.wait()
        await server.stop()
        with pytest.raises(EmbedderUnavailable):
            await waiting
        with pytest.raises(EmbedderUnavailable):
            await ask(client)


@pytest.mark.usefixtures("complaints")
async def test_closing_ends_the_requests_and_the_connections(server: ChatServer) -> None:
    """One that is under way although its caller has given up, and one that is kept for the next request."""
    client = ChatClient(server.url, "tiny-chat")
    await ask(client)
    server.hold_after(0)
    abandoned = asyncio.create_task(ask(client))
    server.arrived.clear()
    await server.arrived.wait()
    abandoned.cancel()
    await asyncio.wait({abandoned})
    await client.close()
    server.release()
    async with asyncio.timeout(30):
        await server.left()
    with pytest.raises(RuntimeError, match="closed"):
        await ask(client)


@pytest.mark.promise("judge-gets-two-texts")
@pytest.mark.promise("expansion-learns-the-query")
@pytest.mark.parametrize(
    ("url", "denied", "allowed"),
    [
        ("http://127.0.0.1:11434", True, True),
        ("http://[::1]:8080", True, True),
        ("http://localhost:8080", True, True),
        ("http://10.0.0.7", True, True),
        ("http://192.168.1.5:11434", True, True),
        ("http://llm:8080", True, True),
        ("http://llm.team.svc:8080", True, True),
        ("http://llm.team.svc.cluster.local:8080", True, True),
        ("https://api.example.com", False, True),
        ("https://8.8.8.8", False, True),
        ("http://api.example.com", False, False),
        ("http://8.8.8.8", False, False),
        ("http://169.254.169.254", False, False),
        ("http://2130706433", False, False),
        ("http://0x7f000001", False, False),
        ("http://llm.team.svc.example.com", False, False),
        ("http://llm.svc.example.com", False, False),
        ("http://localhost.example.com", False, False),
        ("http://127.0.0.1.example.com", False, False),
        ("http://user@127.0.0.1", False, False),
        ("ftp://127.0.0.1", False, False),
        ("127.0.0.1:8080", False, False),
        ("", False, False),
    ],
)
async def test_texts_leave_the_cluster_with_consent_and_tls_alone(url: str, *, denied: bool, allowed: bool) -> None:
    assert (may_receive_texts(url, egress=False), may_receive_texts(url, egress=True)) == (denied, allowed)
    if denied:
        await ChatClient(url, "tiny-chat").close()
    else:
        with pytest.raises(InvalidConfiguration, match=r"may not be sent|none of http"):
            ChatClient(url, "tiny-chat")
    if allowed:
        await ChatClient(url, "tiny-chat", query_egress=True).close()
