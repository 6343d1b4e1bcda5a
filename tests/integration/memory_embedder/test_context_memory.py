"""What contexts take of a process's memory, once each has computed a full batch, is what was estimated, or less."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

from tests.support.model_files.cache import MULTILINGUAL_MODEL_FILE

_MEASURED = """
import json, sys
from pathlib import Path
import numpy as np
from memory_embedder.engine.llama import LlamaEngine
from memory_embedder.engine.protocol import EngineOptions
from memory_embedder.models.profiles import ModelProfile, Pooling
path, dimensions, window, pooling, contexts = Path(sys.argv[1]), *map(int, sys.argv[2:4]), sys.argv[4], int(sys.argv[5])
def taken():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon")) << 10
profile = ModelProfile("measured", dimensions, window, Pooling(pooling))
engine = LlamaEngine(EngineOptions(path, profile, batch_tokens=256, contexts=contexts))
before = taken()
computers = [engine.computer(1) for _ in range(contexts)]
for computer in computers:
    computer.embed([np.full(engine.facts.batch_capacity, 5, dtype=np.int32)])
print(json.dumps({"taken": taken() - before, "estimated": engine.facts.contexts_estimate_bytes}))
"""
WORDS, WIDTH, LAYERS, HEADS, HEAD, HIDDEN = 40_000, 64, 2, 4, 16, 192


def measured(path: Path, dimensions: int, window: int, pooling: str, contexts: int) -> tuple[int, int]:
    """What the contexts take and what is estimated for them, in MiB, in a process of its own."""
    command = [sys.executable, "-c", _MEASURED, str(path), *map(str, (dimensions, window)), pooling, str(contexts)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])  # after what the engine has logged
    return found["taken"] >> 20, found["estimated"] >> 20


@pytest.mark.parametrize("contexts", [1, 2])
def test_an_encoder_of_250_000_words_takes_no_memory_for_each_of_them(contexts: int) -> None:
    """Its logits, which nobody reads, would be 488 MiB of each context."""
    taken, estimated = measured(MULTILINGUAL_MODEL_FILE, 384, 512, "mean", contexts)
    assert estimated / 4 <= taken <= estimated


@pytest.mark.parametrize("contexts", [1, 2])
def test_a_causal_model_takes_its_cache_and_no_memory_for_each_word(contexts: int, tmp_path: Path) -> None:
    """The logits of 2,048 tokens would be 312 MiB, twice in each context."""
    write_qwen3(tmp_path / "tiny.gguf")
    taken, estimated = measured(tmp_path / "tiny.gguf", WIDTH, 2048, "last", contexts)
    assert estimated / 4 <= taken <= estimated


def write_qwen3(path: Path) -> None:
    """Write a model of Qwen3's architecture with two narrow layers of random weights, and many words."""
    random = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_context_length(4096)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_pooling_type(gguf.PoolingType.LAST)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([f"word{number}" for number in range(WORDS)])
    writer.add_token_types([gguf.TokenType.NORMAL] * WORDS)
    writer.add_token_merges(["w o"])
    writer.add_eos_token_id(1)
    shapes = {
        "attn_q": (WIDTH, WIDTH),
        "attn_k": (WIDTH, WIDTH),
        "attn_v": (WIDTH, WIDTH),
        "attn_output": (WIDTH, WIDTH),
    }
    shapes |= {"ffn_gate": (HIDDEN, WIDTH), "ffn_up": (HIDDEN, WIDTH), "ffn_down": (WIDTH, HIDDEN)}
    norms = {"attn_norm": WIDTH, "ffn_norm": WIDTH, "attn_q_norm": HEAD, "attn_k_norm": HEAD}
    writer.add_tensor("token_embd.weight", random.standard_normal((WORDS, WIDTH)).astype(np.float16))
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    for layer in range(LAYERS):
        for name, shape in shapes.items():
            writer.add_tensor(f"blk.{layer}.{name}.weight", random.standard_normal(shape).astype(np.float16))
        for name, width in norms.items():
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(width, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
