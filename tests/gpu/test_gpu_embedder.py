"""The embedder on a real GPU: what it computes, what memory it takes, and what it says where there is too little."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.gpu import computing
from tests.gpu.conftest import Gpu
from tests.integration.memory_embedder.served import Served

Start = Callable[..., Served]


WAYS = ("alone", "together", "at_once")


@pytest.mark.parametrize("name", ["minilm", "large"])
def test_every_layer_is_on_the_gpu_and_the_vectors_are_those_of_the_cpu(
    request: pytest.FixtureRequest, gpu: Gpu, tmp_path: Path, name: str
) -> None:
    model: Path = request.getfixturevalue(name)
    on_gpu = computing.run("vectors", model, tmp_path / "gpu.npz")
    assert on_gpu["device"] == gpu.name.lower()
    assert on_gpu["layers_offloaded"] == on_gpu["layers_total"] > 0
    on_cpu = computing.run("reference", model, tmp_path / "cpu.npy")
    assert on_cpu == {"device": "cpu", "layers_offloaded": 0}
    found, expected = np.load(tmp_path / "gpu.npz"), np.load(tmp_path / "cpu.npy")
    for way in WAYS:
        assert (found[way] * expected).sum(axis=-1).min() >= 0.999, way


def test_a_rerankers_scores_are_those_of_the_cpu(gpu: Gpu, cross_encoder: Path, tmp_path: Path) -> None:
    assert computing.run("vectors", cross_encoder, tmp_path / "gpu.npz")["device"] == gpu.name.lower()
    computing.run("reference", cross_encoder, tmp_path / "cpu.npy")
    found, expected = np.load(tmp_path / "gpu.npz"), np.load(tmp_path / "cpu.npy")
    for way in WAYS:
        wanted = np.broadcast_to(expected, found[way].shape)
        np.testing.assert_allclose(found[way], wanted, rtol=0.01, atol=0.02, err_msg=way)


@pytest.mark.parametrize(
    ("name", "batch_tokens", "contexts"), [("minilm", 2048, 2), ("large", 2048, 2), ("large", 8192, 3)]
)
def test_a_model_takes_no_more_memory_than_was_estimated_before_it_was_loaded(
    request: pytest.FixtureRequest, gpu: Gpu, name: str, batch_tokens: int, contexts: int
) -> None:
    model: Path = request.getfixturevalue(name)
    before = gpu.used()
    result = computing.run("memory", model, batch_tokens, contexts)
    assert 0 < result["used"] - before <= result["estimate"]


def test_the_service_is_ready_on_the_gpu_and_says_so(start: Start, gpu: Gpu, minilm: Path) -> None:
    server = start(minilm)
    assert server.refusal() is None
    metrics = httpx.get(f"{server.probe_url}/metrics", timeout=10).text
    figures = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if not line.startswith("#"))
    assert float(figures["memory_embedder_gpu_layers_offloaded"]) == 7  # six and the output
    assert f'"device": "{gpu.name.lower()}"' in server.log.read_text()


def test_queries_are_answered_while_documents_are_computed(start: Start, minilm: Path) -> None:
    server = start(minilm)
    documents = {"input": [f"document {number} about the backup of a disk " * 10 for number in range(64)]}
    stop, begun, answered, failures = threading.Event(), threading.Event(), list[int](), list[str]()

    def send() -> None:
        with httpx.Client(base_url=server.url, timeout=60) as client:
            while not stop.is_set():
                try:
                    answer = client.post("/v1/embeddings", json={**documents, "input_type": "document"})
                except httpx.HTTPError as error:
                    failures.append(repr(error))
                    break
                if answer.status_code == 200:
                    answered.append(len(documents["input"]))
                elif answer.status_code != 429:
                    failures.append(answer.text[:200])
                begun.set()

    senders = [threading.Thread(target=send) for _ in range(4)]
    for sender in senders:
        sender.start()
    try:
        assert begun.wait(60)
        before = len(answered)
        with httpx.Client(base_url=server.url, timeout=60) as client:
            vectors = [_query(client, "where is the backup?") for _ in range(200)]
        beside = len(answered) - before
    finally:
        stop.set()
        for sender in senders:
            sender.join(90)
    assert failures == []
    assert beside > 0
    assert min(float(np.dot(vectors[0], one)) for one in vectors) > 0.9999


def test_a_reranker_is_served_beside_the_model(start: Start, gpu: Gpu, minilm: Path, cross_encoder: Path) -> None:
    before = gpu.used()
    named = ("--reranker", "random", "--reranker-file", str(cross_encoder), "--reranker-max-tokens", "512")
    server = start(minilm, *named)
    assert server.refusal() is None
    request = {"query": "where is the backup?", "documents": ["on the disk", "in the cellar"]}
    answer = httpx.post(f"{server.url}/v1/rerank", json=request, timeout=60)
    assert len(answer.json()["results"]) == 2
    metrics = httpx.get(f"{server.probe_url}/metrics", timeout=10).text
    figures = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if not line.startswith("#"))
    assert (gpu.used() - before) << 20 <= float(figures["memory_embedder_memory_estimate_bytes"])


def test_without_a_visible_gpu_the_same_program_is_alive_and_not_ready(start: Start, minilm: Path) -> None:
    hidden = {"CUDA_VISIBLE_DEVICES": ""}
    server = start(minilm, env=hidden)
    assert server.refusal() == "gpu_not_used"
    assert httpx.get(f"{server.probe_url}/healthz", timeout=10).status_code == 200
    assert start(minilm, "--allow-cpu", env=hidden).refusal() is None


def test_a_limit_below_the_need_ends_the_process_and_gives_the_numbers(start: Start, minilm: Path) -> None:
    server = start(minilm, "--gpu-memory-limit", "64")
    assert server.process.wait(60) != 0
    assert "--gpu-memory-limit (64 MiB)" in server.log.read_text()


@pytest.mark.parametrize("left", [-100, 195])
def test_a_gpu_that_others_have_booked_is_refused_with_one_sentence(
    start: Start, gpu: Gpu, minilm: Path, left: int
) -> None:
    """Not even CUDA's own part fits, or only that and a part of the model."""
    with _occupied(max(16, _runtime(gpu) + left)):
        server = start(minilm)
        assert server.process.wait(60) != 0
    text = server.log.read_text()
    assert "MiB free" in text
    assert "Traceback" not in text


def test_where_the_default_does_not_fit_the_model_is_served_with_fewer_contexts(
    start: Start, gpu: Gpu, minilm: Path
) -> None:
    with _occupied(_runtime(gpu) + 560):
        server = start(minilm)
        assert server.refusal() is None
        assert _query_of(server)
    loading = next(line for line in server.log.read_text().splitlines() if "Loading the model" in line)
    assert json.loads(loading)["contexts"] == 2


def test_a_stopped_server_gives_back_all_memory_of_the_gpu(start: Start, gpu: Gpu, minilm: Path) -> None:
    before = gpu.used()
    server = start(minilm)
    assert gpu.used() > before
    assert server.stop() == 0
    assert gpu.used() <= before + 1


def test_verify_compares_the_gpus_vectors_with_the_cpus(gpu: Gpu, minilm: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts.jsonl"
    texts.write_text("".join(json.dumps({"text": f"memory {n} of a disk " * (n + 1)}) + "\n" for n in range(20)))
    command = [sys.executable, "-m", "memory_embedder"]
    reference = tmp_path / "reference.jsonl"
    subprocess.run([*command, "vectors", minilm, texts, reference], check=True, timeout=120)
    done = subprocess.run(
        [*command, "verify", minilm, "--against", reference, "--gpu-layers", "-1", "--least", "0.999"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["texts"] == 20


def _runtime(gpu: Gpu) -> int:
    """MiB that CUDA itself takes in a process."""
    before = gpu.used()
    return int(computing.run("runtime")["used"]) - before


def _query_of(server: Served) -> list[float]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        return _query(client, "where is the backup?")


def _query(client: httpx.Client, text: str) -> list[float]:
    answer = client.post("/v1/embeddings", json={"input": text, "input_type": "query"})
    assert answer.status_code == 200, answer.text
    return list(answer.json()["data"][0]["embedding"])


@contextlib.contextmanager
def _occupied(leave: int) -> Iterator[None]:
    """All but `leave` MiB of the GPU's memory are taken by another process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.gpu.occupying", str(leave)],
        cwd=computing.ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline().strip().isdigit()
        yield
    finally:
        process.communicate(timeout=60)
