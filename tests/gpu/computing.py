"""A process that computes on the GPU or the CPU: `python -m tests.gpu.computing JOB ...`, with its result as JSON."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from memory_embedder.engine.backends import load_backends
from memory_embedder.engine.hardware import available_threads
from memory_embedder.engine.llama import LlamaComputer, LlamaEngine
from memory_embedder.engine.protocol import EngineOptions, TokenIds, Vectors
from memory_embedder.models.gguf_header import read_facts
from memory_embedder.models.profiles import ModelProfile, Pooling
from memory_embedder.scheduling.tuning import synthetic_batch

ROOT = Path(__file__).parents[2]
LENGTHS = (3, 12, 31, 60, 122, 128, 250)
_CONTEXTS = 2
_REPEATED = 50  # batches of the same shape, one after another, which CUDA graphs would be made of


def run(job: str, *arguments: object) -> dict[str, Any]:
    """Run one of this module's jobs in a process of its own and return its result."""
    command = [sys.executable, "-m", __name__, job, *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode != 0:
        raise AssertionError(f"{job} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def load(path: Path, gpu_layers: int, *, batch_tokens: int = 2048, contexts: int = 2) -> LlamaEngine:
    """Load a model whose window is at most 512 tokens."""
    facts = read_facts(path)
    pooling = facts.pooling or Pooling.MEAN
    dimensions = 1 if pooling is Pooling.RANK else facts.dimensions
    profile = ModelProfile(path.stem, dimensions, min(512, facts.context_length), pooling)
    return LlamaEngine(
        EngineOptions(path, profile, batch_tokens=batch_tokens, contexts=contexts, gpu_layers=gpu_layers)
    )


def job_reference(model: str, out: str) -> dict[str, Any]:
    """Write the vectors of texts that the CPU computes one by one."""
    engine = load(Path(model), 0)
    np.save(out, _one_by_one(engine.computer(available_threads()), _texts(engine)))
    return {"device": engine.facts.device, "layers_offloaded": engine.facts.layers_offloaded}


def job_vectors(model: str, out: str) -> dict[str, Any]:
    """Write the vectors of these texts that the GPU computes one by one, in one batch, and in two contexts at once."""
    engine = load(Path(model), -1)
    sequences = _texts(engine)
    computers = [engine.computer(1) for _ in range(_CONTEXTS)]
    alone, together = _one_by_one(computers[0], sequences), computers[0].embed(sequences)
    start = threading.Barrier(_CONTEXTS)

    def repeatedly(computer: LlamaComputer) -> Vectors:
        start.wait(60)
        return np.stack([computer.embed(sequences) for _ in range(_REPEATED)])

    with ThreadPoolExecutor(_CONTEXTS) as pool:
        at_once = np.concatenate(list(pool.map(repeatedly, computers)))
    np.savez(out, alone=alone, together=together, at_once=at_once)
    facts = engine.facts
    return {"device": facts.device, "layers_offloaded": facts.layers_offloaded, "layers_total": facts.layers_total}


def _texts(engine: LlamaEngine) -> list[TokenIds]:
    return [one for tokens in LENGTHS for one in synthetic_batch(engine, tokens, 2)]


def _one_by_one(computer: LlamaComputer, sequences: list[TokenIds]) -> Vectors:
    return np.vstack([computer.embed([one]) for one in sequences])


def job_memory(model: str, batch_tokens: str, contexts: str) -> dict[str, Any]:
    """Compute the largest batches in all contexts; return the estimate and, while the model is there, MiB in use."""
    engine = load(Path(model), -1, batch_tokens=int(batch_tokens), contexts=int(contexts))
    for computer in [engine.computer(1) for _ in range(int(contexts))]:
        for batch in _largest(engine):
            computer.embed(batch)
    return {"estimate": engine.facts.memory_estimate_bytes >> 20, "used": used_memory()}


def job_runtime() -> dict[str, Any]:
    """Ask how much memory is free, which CUDA's runtime answers after it has taken what it needs; return MiB in use."""
    load_backends(avoid_amx=False, gpu=True)
    return {"used": used_memory()}


def used_memory() -> int:
    """MiB of the GPU that all processes together have taken."""
    command = ["nvidia-smi", "--id=0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout)


def _largest(engine: LlamaEngine) -> list[list[TokenIds]]:
    """One batch of few long texts and one of as many texts as a batch may have."""
    facts = engine.facts
    long = min(facts.max_tokens, facts.batch_capacity)
    short = min(long, facts.batch_capacity // facts.max_sequences)
    return [
        synthetic_batch(engine, long, facts.batch_capacity // long),
        synthetic_batch(engine, short, facts.max_sequences),
    ]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(globals()[f"job_{sys.argv[1]}"](*sys.argv[2:])) + "\n")
