"""A fake engine with deterministic vectors, controllable delays and failures, and no weights."""

from __future__ import annotations

import asyncio
import hashlib
import os
import resource
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import numpy as np
import pytest

from memory_embedder.engine.protocol import EncodedText, EngineFacts, EngineOptions, PairTokenizer, TokenIds, Vectors
from memory_embedder.errors import EmbedderError, ErrorKind
from memory_embedder.http.app import build_app, build_probe_app
from memory_embedder.models.profiles import DEFAULT_MODEL, Pooling
from memory_embedder.scheduling import service as service_module
from memory_embedder.scheduling.lanes import Lane
from memory_embedder.scheduling.service import EmbeddingService
from memory_embedder.settings import EmbedderSettings, Limits
from memory_embedder.telemetry.metrics import Metrics

CLS, SEP = 1, 2
MOST_MEMORY = 4 << 30  # of the address space, so that what is allocated without a bound fails at once
POISON = "zebra"  # a word for which the fake model computes nothing finite

FACTS = EngineFacts(
    dimensions=384,
    max_tokens=256,
    pooling=Pooling.MEAN,
    device="cpu",
    description="",
    kernels="fake",
    layers_offloaded=0,
    layers_total=7,
    memory_estimate_bytes=1 << 20,
    contexts_estimate_bytes=1 << 19,
    most_contexts=9,
    batch_capacity=256,
    max_sequences=64,
    digest="sha256:" + "5" * 64,
)


def number_of(word: str) -> int:
    return 3 + int.from_bytes(hashlib.blake2b(word.encode(), digest_size=3).digest())


@dataclass
class FakeEngine:
    """An engine with one token per word, two separators, and controls for tests.

    `gate` blocks computation while it is not set; `failures` is how many batches fail, with `crash` if it is set;
    `refused_contexts` is how many contexts cannot be made; `seen` records the lengths of each batch's sequences and
    `threads_used` its number of threads, and `niceness` the priority of the thread that computes it.
    """

    facts: EngineFacts = FACTS
    gate: threading.Event = field(default_factory=threading.Event)
    failures: int = 0
    refused_contexts: int = 0
    crash: type[Exception] | None = None
    seen: list[list[int]] = field(default_factory=list)
    threads_used: list[int] = field(default_factory=list)
    niceness: list[int] = field(default_factory=list)
    computers: int = 0
    closed: bool = False

    def __post_init__(self) -> None:
        self.gate.set()

    def encode(self, text: str) -> EncodedText:
        words = [number_of(word) for word in text.split()]
        limit = self.facts.max_tokens
        tokens = np.array([CLS, *words[: limit - 2], SEP], dtype=np.int32)
        return EncodedText(tokens, truncated=len(words) > limit - 2)

    def pair_tokenizer(self, query: str) -> PairTokenizer:
        return lambda texts: [self.encode(f"{query} {text}") for text in texts]

    def computer(self, threads: int) -> FakeComputer:
        if self.refused_contexts:
            self.refused_contexts -= 1
            raise EmbedderError(ErrorKind.ENGINE, "The fake engine makes no context.")
        self.computers += 1
        return FakeComputer(self, threads)

    def close(self) -> None:
        self.closed = True


@dataclass
class FakeComputer:
    engine: FakeEngine
    threads: int
    warmed: int = 0
    closed: bool = False

    def embed(self, sequences: Sequence[TokenIds]) -> Vectors:
        if self.warmed < 2:
            self.warmed += 1
        else:
            self.engine.gate.wait(30)
            if self.engine.failures:
                self.engine.failures -= 1
                if self.engine.crash:
                    raise self.engine.crash("the text of a caller: CANARY-crash")
                raise EmbedderError(ErrorKind.ENGINE, "The fake engine failed.")
            self.engine.seen.append([len(sequence) for sequence in sequences])
            self.engine.threads_used.append(self.threads)
            self.engine.niceness.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        out = np.empty((len(sequences), self.engine.facts.dimensions), dtype=np.float32)
        if self.engine.facts.pooling is Pooling.RANK:
            scores = [[np.nan if number_of(POISON) in tokens else len(tokens) - 10.0] for tokens in sequences]
            return np.array(scores, dtype=np.float32)
        for row, sequence in enumerate(sequences):
            noise = np.random.default_rng(list(sequence)).standard_normal(out.shape[1])
            out[row] = np.nan if number_of(POISON) in sequence else noise / np.linalg.norm(noise)
        return out

    def use_threads(self, threads: int) -> None:
        self.threads = threads

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def reranking_engine() -> FakeEngine:
    """A reranker whose score of a pair is its number of tokens, less ten."""
    return FakeEngine(facts=replace(FACTS, dimensions=1, pooling=Pooling.RANK, digest="sha256:" + "6" * 64))


@pytest.fixture
def little_memory() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"weights")
    return path


Connect = Callable[[EmbeddingService], httpx.AsyncClient]
MakeService = Callable[..., EmbeddingService]


async def until(condition: Callable[[], bool]) -> None:
    """Wait up to 20 s until another thread has made the condition true."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 -- the state changes on another thread, which knows no event of ours
            await asyncio.sleep(0.005)


@pytest.fixture
def make_service(
    engine: FakeEngine, reranking_engine: FakeEngine, model_file: Path, monkeypatch: pytest.MonkeyPatch
) -> MakeService:
    def load(options: EngineOptions) -> FakeEngine:
        return reranking_engine if options.profile.pooling is Pooling.RANK else engine

    def make(
        *,
        cores: int = 1,
        free_cores: Callable[[int, int | None], int] | None = None,
        limits: Limits | None = None,
        **settings: object,
    ) -> EmbeddingService:
        monkeypatch.setattr(service_module, "available_threads", lambda: cores)
        monkeypatch.setattr(service_module, "FreeCores", lambda: free_cores or (lambda _own, _thread=None: cores))
        chosen = EmbedderSettings(**{"model": DEFAULT_MODEL, "model_file": model_file, **settings})  # type: ignore[arg-type]
        if chosen.batch_tokens:
            engine.facts = replace(engine.facts, batch_capacity=max(chosen.batch_tokens, engine.facts.max_tokens))
        return EmbeddingService(chosen, load, Metrics(Lane), limits=replace(limits or Limits(), tuning_seconds=0))

    return make


@pytest.fixture
async def service(make_service: MakeService, engine: FakeEngine) -> AsyncIterator[EmbeddingService]:
    made = make_service()
    made.load()
    yield made
    engine.gate.set()
    made.close()


@pytest.fixture
async def client(service: EmbeddingService) -> AsyncIterator[httpx.AsyncClient]:
    async with make_client(service) as http:
        yield http


def make_client(service: EmbeddingService) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=build_app(service)), base_url="http://embedder")


def make_probe(service: EmbeddingService) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=build_probe_app(service)), base_url="http://probe")


@pytest.fixture
def connect() -> Connect:
    return make_client


@pytest.fixture
def connect_probe() -> Connect:
    return make_probe


@pytest.fixture
async def probe(service: EmbeddingService) -> AsyncIterator[httpx.AsyncClient]:
    async with make_probe(service) as http:
        yield http


def refuse_load(_options: EngineOptions) -> FakeEngine:
    raise EmbedderError(ErrorKind.CONFIGURATION, "no such file")
