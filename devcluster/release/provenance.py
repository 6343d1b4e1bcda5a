"""Says in SLSA's form how a release was built: https://slsa.dev/spec/v1.0/provenance."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from devcluster.building.digests import sha256_of
from devcluster.release.source import Source

_BUILD_TYPE = "https://memory-index.dev/release/v1"
_MATERIALS = ("requirements/*.txt", "tools/*/go.sum")


def provenance(
    source: Source, *, version: str, registry: str, platforms: Iterable[str], builder: str, began: float, ended: float
) -> str:
    """Return the predicate of an in-toto statement, as JSON; `began` and `ended` are Unix seconds.

    `builder` is a URI of whoever ran the build. The statement about an artifact's digest is made by cosign.
    """
    locks = sorted(path for pattern in _MATERIALS for path in source.root.glob(pattern))
    document = {
        "buildDefinition": {
            "buildType": _BUILD_TYPE,
            "externalParameters": {"version": version, "registry": registry, "platforms": sorted(platforms)},
            "internalParameters": {},
            "resolvedDependencies": [
                {"uri": f"git+{source.address}", "digest": {"gitCommit": source.commit}},
                *(_lock(path, source.root) for path in locks),
            ],
        },
        "runDetails": {
            "builder": {"id": builder},
            "metadata": {"startedOn": _moment(began), "finishedOn": _moment(ended)},
        },
    }
    return json.dumps(document, indent=2) + "\n"


def _lock(path: Path, root: Path) -> dict[str, object]:
    return {"name": path.relative_to(root).as_posix(), "digest": {"sha256": sha256_of(path)}}


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
