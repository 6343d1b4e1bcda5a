"""Model files whose vectors are not finite for some texts, or are of another width than their network."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from memory_embedder.engine.llama import LlamaEngine
from memory_embedder.engine.protocol import EngineOptions
from memory_embedder.engine.vectors import unusable_rows
from memory_embedder.errors import EmbedderError
from memory_embedder.models.profiles import PROFILES
from tests.integration.memory_embedder.served import Served, launch
from tests.support.model_files.altered import write_altered

MINILM = PROFILES["all-MiniLM-L6-v2"]
TEXTS = ("where is the old disk", "a zebra", "the invoice for the garden", "zebra crossing", "backups run nightly")


@pytest.fixture(scope="module")
def poisoned(f16_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("poisoned") / "model.gguf"
    write_altered(f16_file, path, poisoned_word="zebra")
    return path


@pytest.fixture(scope="module")
def poisoned_server(poisoned: Path) -> Iterator[Served]:
    served = launch(poisoned, poisoned.with_name("log"), "--contexts", "2", "--batch-tokens", "256")
    yield served
    assert served.stop() == 0


@pytest.mark.finding("embedder 1")
def test_the_other_texts_of_a_batch_have_the_vectors_that_they_have_alone(poisoned: Path) -> None:
    """And the context computes right afterwards: the infinite numbers stay in no buffer."""
    engine = LlamaEngine(EngineOptions(path=poisoned, profile=MINILM, batch_tokens=256, contexts=1))
    computer = engine.computer(1)
    tokens = [engine.encode(text).tokens for text in TEXTS]
    alone = [computer.embed([one])[0] for one in tokens]
    for _ in range(3):
        together = computer.embed(tokens)
        assert unusable_rows(together) == [1, 3]
        for place in (0, 2, 4):
            assert np.allclose(together[place], alone[place], atol=1e-4)
            assert np.isclose(np.linalg.norm(together[place]), 1, atol=1e-5)
    computer.close()
    engine.close()


@pytest.mark.promise("bad-vector-costs-itself")
@pytest.mark.finding("embedder 1")
def test_a_poisoned_text_fails_its_own_request_alone_and_no_sdk_repeats_it(
    poisoned_server: Served, openai: Any
) -> None:
    """Forty clients at once, of which one in ten sends it; each request is sent once."""
    sent, lock = [0], threading.Lock()

    def count(_: httpx.Request) -> None:
        with lock:
            sent[0] += 1

    http = httpx.Client(event_hooks={"request": [count]})
    client = openai.OpenAI(base_url=f"{poisoned_server.url}/v1", api_key="none", http_client=http)

    def ask(number: int) -> str:
        texts = [f"note {number} about the garden", "a zebra" if number % 10 == 0 else "a horse"]
        try:
            answer = client.embeddings.create(model=MINILM.name, input=texts)
        except openai.UnprocessableEntityError as error:
            return str(error.param)
        return str(len(answer.data))

    with ThreadPoolExecutor(40) as pool:
        for _ in range(3):
            found = list(pool.map(ask, range(40)))
            assert found == ["input[1]" if number % 10 == 0 else "2" for number in range(40)]
    assert sent == [120]
    metrics = httpx.get(f"{poisoned_server.probe_url}/metrics").text
    assert "memory_embedder_engine_failures_total 0.0" in metrics


@pytest.mark.promise("model-widths-compared")
@pytest.mark.finding("embedder 5")
@pytest.mark.parametrize("width", [376, 128, 512])
def test_a_file_that_gives_out_another_width_is_refused_before_it_is_loaded(
    f16_file: Path, tmp_path: Path, width: int
) -> None:
    """Loaded, it gives out a neighbour's vector, vectors that are not finite, or an abort of the process."""
    path = tmp_path / "model.gguf"
    write_altered(f16_file, path, numbers={"embedding_length_out": width})
    with pytest.raises(EmbedderError, match=f"gives out {width} numbers for a text"):
        LlamaEngine(EngineOptions(path=path, profile=MINILM, batch_tokens=256, contexts=1))


@pytest.mark.promise("model-widths-compared")
@pytest.mark.finding("embedder 5")
def test_the_width_that_llama_cpp_itself_names_decides(
    f16_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else a later release of it takes a width from."""
    path = tmp_path / "model.gguf"
    write_altered(f16_file, path, numbers={"embedding_length_out": 376})
    monkeypatch.setattr("memory_embedder.engine.llama.check_profile", lambda *_, **__: None)
    with pytest.raises(EmbedderError, match=r"llama\.cpp gives out 376 numbers"):
        LlamaEngine(EngineOptions(path=path, profile=MINILM, batch_tokens=256, contexts=1))
