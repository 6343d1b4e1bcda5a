"""A hostile embedder costs the operator little, and learns and reaches nothing through it."""

import asyncio
import gzip
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from memory_operator.api.reasons import Reason
from memory_operator.api.spec import InvalidSpecError, parse
from memory_operator.clients import http
from memory_operator.clients.embedder import MOST_PODS, EmbedderProbe, parse_metrics
from memory_operator.clients.http import Answer, HttpClient, NoAnswerError
from memory_operator.reconcile.authorization.addresses import is_forbidden
from memory_operator.reconcile.authorization.permissions import Permitted
from memory_operator.reconcile.facts import PodFacts, Problem, WorkerReport
from tests.unit.memory_operator.conftest import World, anywhere

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
MODELS = json.dumps({"data": [{"id": "all-MiniLM-L6-v2", "dimensions": 384}]}).encode()
ANY = "0.0.0.0"  # noqa: S104 - an address to connect to, not to listen on
Write = Callable[[asyncio.StreamWriter], Awaitable[None]]


class Server:
    """A server on the loopback address that answers as a test wants."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self.requests: list[bytes] = []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):  # the client gives up, as most tests want
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                await self._write(writer)
        finally:
            writer.close()


@asynccontextmanager
async def serving(write: Write) -> AsyncIterator[tuple[Server, str]]:
    server = Server(write)
    listening = await asyncio.start_server(server.handle, "127.0.0.1", 0)
    try:
        yield server, f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        listening.close()


@pytest.fixture
async def client() -> AsyncIterator[HttpClient]:
    """A client that may connect to the loopback address."""
    async with http.opened(lambda _: True) as opened:
        yield opened


def answering(body: bytes, *headers: bytes) -> Write:
    async def write(writer: asyncio.StreamWriter) -> None:
        length = b"Content-Length: %d\r\n" % len(body)
        writer.write(HEAD + b"".join(header + b"\r\n" for header in headers) + length + b"\r\n" + body)
        await writer.drain()

    return write


class Repeating:
    """Writes the same bytes so many times, with a pause in between, and counts them."""

    def __init__(self, part: bytes, most: int, pause: float = 0.0) -> None:
        self.part = part
        self.most = most
        self.pause = pause
        self.times = 0

    async def __call__(self, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"\r\n")
        while self.times < self.most:
            writer.write(self.part)
            await writer.drain()
            self.times += 1
            await asyncio.sleep(self.pause)


async def test_an_answer_is_read_whole(client: HttpClient) -> None:
    async with serving(answering(MODELS)) as (server, url):
        assert await client.send(f"{url}/v1/models", {}) == Answer(200, MODELS)
    assert b"Accept-Encoding: identity" in server.requests[0]


@pytest.mark.finding("H6")
async def test_a_compressed_answer_is_not_unpacked(client: HttpClient) -> None:
    packed = gzip.compress(b" " * 50_000_000)
    async with serving(answering(packed, b"Content-Encoding: gzip")) as (_, url):
        answer = await client.send(url, {})
    assert answer.body == packed
    assert answer.body.startswith(b"\x1f\x8b"), "as it came"


async def test_an_answer_without_end_is_given_up_at_its_size(client: HttpClient) -> None:
    endless = Repeating(b"x" * 65536, most=1_000_000)
    async with serving(endless) as (_, url):
        with pytest.raises(NoAnswerError, match="longer than 1024 KiB"):
            await client.send(url, {})
    assert endless.times < 500, "what the sockets hold in between comes on top of 16 parts"


@pytest.mark.finding("H6")
async def test_an_answer_that_comes_byte_by_byte_is_given_up_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "TIMEOUT_SECONDS", 0.3)
    dripping = Repeating(b" ", most=100, pause=0.02)  # each byte comes in time, the whole does not
    async with http.opened(lambda _: True) as client, serving(dripping) as (_, url):
        with pytest.raises(NoAnswerError, match=r"longer than 0\.3 s"):
            await client.send(url, {})


async def test_a_redirect_is_not_followed(client: HttpClient) -> None:
    async def elsewhere(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: /secret\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    async with serving(elsewhere) as (server, url):
        assert (await client.send(url, {})).code == 302
    assert len(server.requests) == 1


@pytest.mark.promise("hostile-embedder-bounded")
@pytest.mark.finding("M9")
@pytest.mark.parametrize("host", ["127.0.0.1", "[::ffff:127.0.0.1]", ANY])
async def test_a_refused_address_gets_no_connection_whatever_it_is_called(host: str) -> None:
    async with http.opened(lambda address: not is_forbidden(address)) as client, serving(answering(MODELS)) as found:
        server, url = found
        with pytest.raises(NoAnswerError, match="does not connect to"):
            await client.send(url.replace("127.0.0.1", host), {"Authorization": "Bearer key"})
        with pytest.raises(NoAnswerError, match="does not connect to"):
            await client.send(url.replace("127.0.0.1", "embedder.team.svc"), {}, ["127.0.0.1"])
    assert server.requests == []


@pytest.mark.finding("security S3")
@pytest.mark.finding("security S10")
async def test_the_given_address_is_connected_to_and_no_name_is_resolved(client: HttpClient) -> None:
    async with serving(answering(MODELS)) as (server, url):
        named = url.replace("127.0.0.1", "embedder.team.svc")
        assert await client.send(f"{named}/v1/models", {}, ["127.0.0.1"]) == Answer(200, MODELS)
        with pytest.raises(NoAnswerError):
            await client.send(url.replace("127.0.0.1", "localhost"), {})
    (request,) = server.requests
    assert b"Host: embedder.team.svc:" in request


async def test_the_next_address_is_tried_where_one_refuses(client: HttpClient) -> None:
    async with serving(answering(MODELS)) as (_, url):
        named = url.replace("127.0.0.1", "embedder.team.svc")
        assert (await client.send(named, {}, ["127.0.0.2", "127.0.0.1"])).code == 200


def probing(world: World, answer: Answer | NoAnswerError) -> tuple[EmbedderProbe, list[str]]:
    urls: list[str] = []

    async def get(url: str, *_: Any) -> Answer:
        urls.append(url)
        if isinstance(answer, NoAnswerError):
            raise answer
        return answer

    return EmbedderProbe(get, world.permitted, anywhere), urls


EXTERNAL = {"embedder": {"external": {"url": "http://e:8080"}}}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer(200, MODELS), None),
        (Answer(401, b""), Reason.EMBEDDER_UNAUTHORIZED),
        (Answer(302, b""), Reason.EXTERNAL_UNREACHABLE),
        (Answer(503, b""), Reason.EXTERNAL_UNREACHABLE),
        (Answer(200, b"[" * 500_000), Reason.EXTERNAL_UNREACHABLE),
        (Answer(200, b'{"data": 7}'), Reason.EXTERNAL_UNREACHABLE),
        (Answer(200, b'{"data": [7, null, "x"]}'), Reason.MODEL_MISMATCH),
        (Answer(200, b"\xff\xfe"), Reason.EXTERNAL_UNREACHABLE),
        (NoAnswerError("it took longer than 5 s"), Reason.EXTERNAL_UNREACHABLE),
    ],
)
async def test_every_answer_of_an_external_embedder_has_its_reason(
    world: World, answer: Answer | NoAnswerError, reason: Reason | None
) -> None:
    probe, urls = probing(world, answer)
    problem = await probe.external(world.index(**EXTERNAL), None)
    assert (problem.reason if isinstance(problem, Problem) else None) is reason
    assert urls == ["http://e:8080/v1/models"]


async def test_a_host_that_is_not_permitted_is_not_asked(world: World) -> None:
    probe, urls = probing(world, Answer(200, MODELS))
    index = world.index(embedder={"external": {"url": "http://169.254.169.254"}})
    problem = await probe.external(index, "the-key")
    assert problem is not None
    assert problem.reason is Reason.NOT_PERMITTED
    assert urls == []


@pytest.mark.promise("key-encrypted-or-unsent")
@pytest.mark.parametrize(
    ("url", "asked"),
    [
        ("http://embed.example.org:8080", False),
        ("HTTP://embed.example.org:8080", False),
        ("http://emb.team.svc.embed.example.org", False),
        ("https://embed.example.org:8080", True),
        ("http://emb.team.svc:8080", True),
    ],
)
async def test_a_key_is_sent_only_where_it_stays_secret(world: World, url: str, asked: bool) -> None:
    world.permitted = Permitted(external_hosts=("embed.example.org", ".embed.example.org"))
    probe, urls = probing(world, Answer(200, MODELS))
    external = {"url": url, "apiKey": {"secretName": "key"}}
    index = world.index(embedder={"external": external}, embedding={"queryEgress": "Allowed"})
    problem = await probe.external(index, "the-key")
    assert bool(urls) is asked
    assert (problem.reason if isinstance(problem, Problem) else None) is (None if asked else Reason.INVALID_SPEC)


async def test_no_key_is_sent_to_anything_but_an_external_embedder(world: World) -> None:
    probe, urls = probing(world, Answer(200, MODELS))
    assert isinstance(await probe.external(world.index(), "the-key"), Problem)
    assert urls == []


VECTOR = [0.1] * 384
WRONG = [0.1] * 1024
ALL_OF_OPENAI = {"data": [{"id": "BAAI/bge", "object": "model"}, {"id": "all-MiniLM-L6-v2"}]}


@pytest.mark.finding("mission 4.3")
@pytest.mark.parametrize(
    ("external", "answers", "reason"),
    [
        ({"api": "OpenAI"}, {"/v1/models": ALL_OF_OPENAI, "/v1/embeddings": {"data": [{"embedding": VECTOR}]}}, None),
        (
            {"api": "OpenAI", "model": "BAAI/bge"},
            {"/v1/models": ALL_OF_OPENAI, "/v1/embeddings": {"data": [{"embedding": VECTOR}]}},
            None,
        ),
        ({"api": "OpenAI"}, {"/v1/embeddings": {"data": [{"embedding": VECTOR}]}}, None),
        ({"api": "OpenAI", "model": "none"}, {"/v1/models": ALL_OF_OPENAI}, Reason.MODEL_MISMATCH),
        (
            {"api": "OpenAI"},
            {"/v1/models": ALL_OF_OPENAI, "/v1/embeddings": {"data": [{"embedding": WRONG}]}},
            Reason.DIMENSION_MISMATCH,
        ),
        ({"api": "OpenAI"}, {"/v1/models": ALL_OF_OPENAI}, Reason.EXTERNAL_UNREACHABLE),
        (
            {"api": "OpenAI"},
            {"/v1/models": ALL_OF_OPENAI, "/v1/embeddings": {"object": "list", "data": []}},
            Reason.EXTERNAL_UNREACHABLE,
        ),
        ({"api": "TEI"}, {"/info": {"model_id": "sentence-transformers/all-MiniLM-L6-v2"}, "/embed": [VECTOR]}, None),
        ({"api": "TEI", "model": "/data"}, {"/info": {"model_id": "/data"}, "/embed": [VECTOR]}, None),
        ({"api": "TEI"}, {"/info": {"model_id": "BAAI/bge-small-en-v1.5"}, "/embed": [VECTOR]}, Reason.MODEL_MISMATCH),
        ({"api": "TEI"}, {"/info": {"model_id": "all-MiniLM-L6-v2"}, "/embed": [WRONG]}, Reason.DIMENSION_MISMATCH),
        ({"api": "MemoryIndex"}, {"/v1/models": ALL_OF_OPENAI}, Reason.EXTERNAL_UNREACHABLE),
    ],
)
async def test_a_third_party_embedder_is_ready_if_it_lists_the_model_and_embeds_with_its_dimensions(
    world: World, external: dict[str, Any], answers: dict[str, Any], reason: Reason | None
) -> None:
    """A server without a list of models is taken at its word. One that is none of ours is not taken for one."""

    async def send(url: str, headers: Any, addresses: Any = (), *, body: Any = None) -> Answer:
        path = url.removeprefix("http://e:8080")
        assert (body is None) == (path in {"/v1/models", "/info"}), "whatever embeds is asked by POST"
        return Answer(200, json.dumps(answers[path]).encode()) if path in answers else Answer(404, b"")

    probe = EmbedderProbe(send, world.permitted, anywhere)
    found = await probe.external(world.index(embedder={"external": {"url": "http://e:8080", **external}}), None)
    assert (found.reason if isinstance(found, Problem) else None) is reason, found
    assert not isinstance(found, Problem) or found.reason is not Reason.EXTERNAL_UNREACHABLE or found.remedy


@pytest.mark.parametrize(
    ("code", "reason", "says"),
    [
        (429, None, ""),
        (401, Reason.EMBEDDER_UNAUTHORIZED, ""),
        (503, Reason.EXTERNAL_UNREACHABLE, ""),
        (500, Reason.EXTERNAL_UNREACHABLE, ""),
        (400, Reason.EXTERNAL_UNREACHABLE, "spec.embedder.external.api"),
        (501, Reason.EXTERNAL_UNREACHABLE, "spec.embedder.external.api"),
    ],
)
async def test_only_a_request_that_is_not_understood_is_laid_to_the_api_and_a_busy_server_serves(
    world: World, code: int, reason: Reason | None, says: str
) -> None:
    async def send(url: str, headers: Any, addresses: Any = (), *, body: Any = None) -> Answer:
        return Answer(200, json.dumps(ALL_OF_OPENAI).encode()) if body is None else Answer(code, b"")

    probe = EmbedderProbe(send, world.permitted, anywhere)
    external = {"url": "http://e:8080", "api": "OpenAI"}
    found = await probe.external(world.index(embedder={"external": external}), None)
    problem = found if isinstance(found, Problem) else None
    assert (problem.reason if problem else None) is reason
    assert says in (problem.remedy if problem else "")
    assert says or not problem or "external.api" not in problem.remedy


async def test_no_word_is_embedded_beyond_the_cluster_to_learn_the_dimensions(world: World) -> None:
    """A hosted provider takes money for each."""
    world.permitted = Permitted(external_hosts=("api.example",))
    probe, urls = probing(world, Answer(200, json.dumps(ALL_OF_OPENAI).encode()))
    external = {"url": "https://api.example", "api": "OpenAI"}
    index = world.index(embedder={"external": external}, embedding={"queryEgress": "Allowed"})
    assert not isinstance(await probe.external(index, None), Problem)
    assert urls == ["https://api.example/v1/models"]


@pytest.mark.finding("M9")
async def test_little_of_what_a_server_says_is_quoted(world: World) -> None:
    models = json.dumps({"data": [{"id": f"{number}" + "x" * 5000} for number in range(100)]}).encode()
    probe, _ = probing(world, Answer(200, models))
    problem = await probe.external(world.index(**EXTERNAL), None)
    assert problem is not None
    assert len(problem.message) < 700


async def test_a_pods_metrics_are_asked_for_at_its_address(world: World) -> None:
    probe, urls = probing(world, Answer(200, b"memory_embedder_tokens_per_second 5\n"))
    pods = [
        PodFacts("a", "embedder", ip="10.0.0.7", controlled=True),
        PodFacts("b", "embedder", ip="fd00::7", controlled=True),
        PodFacts("c", "embedder", controlled=True),
    ]
    loads = await probe.loads(pods)
    assert urls == ["http://10.0.0.7:9090/metrics", "http://[fd00::7]:9090/metrics"]
    assert [load.tokens_per_second for load in loads] == [5.0, 5.0]


@pytest.mark.promise("hostile-embedder-bounded")
@pytest.mark.finding("security S2")
async def test_few_pods_are_asked_and_none_that_only_carries_the_labels(world: World) -> None:
    probe, urls = probing(world, Answer(200, b"memory_embedder_tokens_per_second 5\n"))
    foreign = [PodFacts(f"f{number}", "embedder", ip="10.1.0.1") for number in range(50)]
    ours = [PodFacts(f"o{number}", "embedder", ip=f"10.0.0.{number}", controlled=True) for number in range(50)]
    assert len(await probe.loads([*foreign, *ours])) == len(urls) == MOST_PODS
    assert not any("10.1.0.1" in url for url in urls)
    assert await probe.worker_report(foreign) == WorkerReport()
    assert len(urls) == MOST_PODS


async def test_a_pod_that_has_ended_is_not_asked_and_takes_no_place_of_one_that_runs(world: World) -> None:
    """Evicted pods of a Deployment and completed ones of a Job stay, with an address that is another pod's by now."""
    probe, urls = probing(world, Answer(200, b"memory_embedder_tokens_per_second 5\n"))
    ended = [
        PodFacts(f"a{number}", "embedder", ip=f"10.1.0.{number}", ended=True, controlled=True)
        for number in range(MOST_PODS)
    ]
    runs = PodFacts("b", "embedder", ip="10.0.0.1", controlled=True)
    assert [load.pod for load in await probe.loads([*ended, runs])] == ["b"]
    await probe.worker_report([*ended, runs])
    assert urls == ["http://10.0.0.1:9090/metrics"] * 2


DEVICE = "memory_embedder_device_info"
HOSTILE_PAGES = {
    "escaped quotes": f'{DEVICE}{{device="' + '\\"' * (500 * 1024) + '"} 1\n',
    "many labels": f"{DEVICE}{{" + ",".join(f'a{number:x}=""' for number in range(100_000)) + "} 1\n",
    "open labels": f'{DEVICE}{{device="x' * 20_000,
    "a long name": f'{DEVICE}{{device="' + "x" * (1 << 20) + '"} 1\n',
    "many short lines": f"{DEVICE}\n" * 40_000,
    "a long number": "memory_embedder_tokens_per_second " + "9" * (1 << 20) + "\n",
    "a huge number": "memory_embedder_gpu_layers_offloaded 1e300\nmemory_embedder_queued_tokens -1e300\n",
    "a superscript": "memory_embedder_gpu_layers_offloaded \N{SUPERSCRIPT TWO}\n",
}


@pytest.mark.promise("hostile-embedder-bounded")
@pytest.mark.finding("security S2")
@pytest.mark.parametrize("page", HOSTILE_PAGES.values(), ids=HOSTILE_PAGES)
def test_a_hostile_metrics_page_is_read_within_the_steps_of_its_size(page: str) -> None:
    """The steps of the regular expressions are counted by the calls that the parser makes for a page of 1 MiB."""
    calls = Counter[str]()

    def count(_frame: Any, event: str, argument: Any) -> None:
        calls[getattr(argument, "__name__", event)] += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        load = parse_metrics("p", page)
    finally:
        sys.setprofile(None)
    assert calls.total() < 10_000
    assert load.device is None or len(load.device) < 512
    assert load.queued_tokens == 0
    assert (load.gpu_layers_offloaded or 0) < 2**31


def test_only_the_first_samples_of_a_metrics_page_are_parsed() -> None:
    page = "memory_embedder_queued_tokens 1\n" * 5000
    assert parse_metrics("p", page).queued_tokens == 100


@pytest.mark.parametrize("url", ["http://user:pass-word@e:8080", "http://user@e", "ftp://e", "e:8080"])
def test_a_url_with_a_user_name_is_refused_and_never_quoted(world: World, url: str) -> None:
    manifest = world.manifest(embedder={"external": {"url": url}})
    with pytest.raises(InvalidSpecError, match=r"spec\.embedder\.external\.url") as caught:
        parse(manifest)
    assert "pass-word" not in str(caught.value)
