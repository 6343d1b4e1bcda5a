"""What contexts take of a process's memory, once each has computed a full batch, is what was estimated, or less."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.model_files.cache import MULTILINGUAL_MODEL_FILE
from tests.support.model_files.causal import WIDTH, write_causal

_MEASURED = """
import json, sys
from pathlib import Path
import numpy as np
from memory_embedder.engine.llama import LlamaEngine
from memory_embedder.engine.protocol import EngineOptions
from memory_embedder.hardening import return_large_blocks
from memory_embedder.models.profiles import ModelProfile, Pooling
return_large_blocks()  # as `serve` does, so that contexts take nothing that was only read while the model was loaded
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
    write_causal(tmp_path / "tiny.gguf", words=40_000)
    taken, estimated = measured(tmp_path / "tiny.gguf", WIDTH, 2048, "last", contexts)
    assert estimated / 4 <= taken <= estimated
