"""What the engine does for a GPU before there is one: how many contexts fit, CUDA graphs, and what CUDA says."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import structlog.testing

from memory_embedder.engine import llama
from memory_embedder.engine.backends import GpuDevice
from memory_embedder.engine.memory_estimate import MemoryNeed, estimate_memory, largest_fitting
from memory_embedder.engine.native_log import NativeLog
from memory_embedder.engine.protocol import EngineOptions
from memory_embedder.errors import EmbedderError
from memory_embedder.models.gguf_header import GgufFacts
from memory_embedder.models.profiles import PROFILES, Pooling

MINILM = PROFILES["all-MiniLM-L6-v2"]
HEADER = GgufFacts(
    architecture="bert",
    name="minilm",
    dimensions=384,
    output_width=384,
    context_length=512,
    layers=6,
    heads=12,
    key_value_width=384,
    pooling=Pooling.MEAN,
    quantised=False,
    strips_accents=True,
    causal=False,
    token_types=2,
    classifier_outputs=0,
    vocabulary=30_522,
    file_bytes=44 << 20,
)
ERROR = 4


def test_memory_is_estimated_before_loading_and_refused_with_the_numbers() -> None:
    header = replace(
        HEADER,
        architecture="qwen3",
        dimensions=1024,
        layers=28,
        key_value_width=1024,
        pooling=Pooling.LAST,
        causal=True,
        file_bytes=600 << 20,
    )
    need = estimate_memory(header, capacity=8192, contexts=2, gpu=True)
    cache = 2 * 8192 * 28 * 1024 * 4  # of keys and values alone
    assert need.contexts > cache
    undeclared = estimate_memory(replace(header, pooling=None), capacity=8192, contexts=2, gpu=True)
    assert undeclared == need
    encoder = estimate_memory(replace(header, causal=False), capacity=8192, contexts=2, gpu=True)
    assert need.contexts - encoder.contexts == cache
    with_output_layer = estimate_memory(replace(header, architecture="llama"), capacity=8192, contexts=2, gpu=True)
    assert with_output_layer.contexts - need.contexts == 2 * 8192 * header.vocabulary * 4
    device = GpuDevice("CUDA0", "Tesla T4", memory_free=1 << 30, memory_total=16 << 30)
    with pytest.raises(EmbedderError, match=r"CUDA0 has 1024 MiB free"):
        largest_fitting([need, need], device, None)
    small, least = MemoryNeed(256, 2, 100 << 20, 10 << 20, 300 << 20), MemoryNeed(256, 1, 1, 1, 1)
    assert largest_fitting([need, small, least], device, None) == small
    assert largest_fitting([small, least], device, 512 << 20) == small
    assert largest_fitting([small, least], device, 256 << 20) == least
    with pytest.raises(EmbedderError, match=r"--gpu-memory-limit \(256 MiB\)"):
        largest_fitting([small], device, 256 << 20)
    assert largest_fitting([small, least], device, None, reserved=950 << 20) == least
    with pytest.raises(EmbedderError, match=r"CUDA0 has 1024 MiB free, of which 950 are kept for"):
        largest_fitting([small], device, None, reserved=950 << 20)


def fitting(free_mib: int, *, least: int | None = None, reserved: int | None = None) -> MemoryNeed:
    """What is chosen for three contexts of the default model on a GPU with so much free memory."""
    options = EngineOptions(
        Path("minilm.gguf"), MINILM, 2048, 3, least_contexts=least, reserved=reserved, gpu_layers=-1
    )
    device = GpuDevice("CUDA0", "NVIDIA H200", memory_free=free_mib << 20, memory_total=1 << 37)
    return llama._fitting(options, HEADER, 2048, (device,))


def test_as_many_contexts_are_planned_as_fit_and_no_fewer_than_are_needed() -> None:
    assert fitting(4096, least=2).context_count == 3
    assert fitting(550, least=2).context_count == 2
    with pytest.raises(EmbedderError, match="has 300 MiB free"):
        fitting(300, least=2)
    with pytest.raises(EmbedderError, match="has 550 MiB free"):
        fitting(550)


def test_a_second_model_leaves_the_first_its_memory_and_counts_cudas_own_part_no_more() -> None:
    alone = fitting(4096)
    beside = fitting(4096, reserved=1 << 30)
    assert alone.total - beside.total == alone.runtime > 0
    assert fitting(4096, least=1, reserved=(4096 - 400) << 20).context_count == 1


def test_without_a_gpu_the_wanted_contexts_are_planned() -> None:
    options = EngineOptions(Path("minilm.gguf"), MINILM, 2048, 3, least_contexts=2, gpu_layers=-1)
    need = llama._fitting(options, HEADER, 2048, ())
    assert need == estimate_memory(HEADER, capacity=2048, contexts=3, gpu=False)


def on_a_cpu(header: GgufFacts, mib: int, *, contexts: int = 9) -> MemoryNeed:
    """What is chosen on a CPU for a window of 8,192 tokens, in a container of so much memory."""
    options = EngineOptions(Path("model.gguf"), MINILM, 256, contexts, least_contexts=2, memory=mib << 20)
    return llama._fitting(options, header, 8192, ())


def test_on_a_cpu_there_are_as_many_contexts_as_fit_into_the_container_s_memory() -> None:
    """With 9 contexts of 8,192 tokens, nomic-embed-text-v1.5 would be killed in 2 GiB, the operator's default limit."""
    nomic = replace(HEADER, dimensions=768, layers=12, file_bytes=274 << 20)
    assert on_a_cpu(nomic, 16 << 10).context_count == 9
    assert 2 <= on_a_cpu(nomic, 2048).context_count < 9
    assert on_a_cpu(nomic, 2048).total <= 2048 << 20


def test_a_model_too_large_for_the_container_is_refused_with_what_it_needs() -> None:
    shape = {"dimensions": 1024, "layers": 28, "key_value_width": 1024, "file_bytes": 639 << 20}
    qwen = replace(HEADER, architecture="qwen3", causal=True, **shape)
    need = on_a_cpu(qwen, 8192, contexts=2).total >> 20
    assert on_a_cpu(qwen, need + 1).context_count == 2
    said = rf"about {need} MiB with 2 contexts of 8192 tokens, more than the 2048 MiB"
    with pytest.raises(EmbedderError, match=said):
        on_a_cpu(qwen, 2048)


def test_what_cuda_says_of_an_error_is_logged_and_nothing_else_of_a_message() -> None:
    messages = [b"CUDA error: out of memory\n", b"CUDA error: at CANARY's text: {secret}\n", b"CANARY of a text\n"]
    with structlog.testing.capture_logs() as logs:
        for message in messages:
            NativeLog()._receive(ERROR, message, None)
    assert [log.get("reason") for log in logs] == ["CUDA error: out of memory", None, None]
    assert "CANARY" not in str(logs)


@pytest.mark.parametrize("given", [None, "0"])
def test_cuda_graphs_are_off_where_a_gpu_backend_is_loaded(given: str | None) -> None:
    """In another process, since a backend is loaded once; any value of the variable switches them off."""
    code = (
        "import os\n"
        "from memory_embedder.engine.backends import load_backends\n"
        "before = os.environ.get('GGML_CUDA_DISABLE_GRAPHS')\n"
        "load_backends(avoid_amx=False, gpu=False)\n"
        "assert os.environ.get('GGML_CUDA_DISABLE_GRAPHS') == before\n"
        "load_backends(avoid_amx=False, gpu=True)\n"
        "print(os.environ['GGML_CUDA_DISABLE_GRAPHS'])\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "GGML_CUDA_DISABLE_GRAPHS"}
    environment |= {"GGML_CUDA_DISABLE_GRAPHS": given} if given else {}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split()[-1] == (given or "1")
