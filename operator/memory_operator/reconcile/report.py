"""The status that a decision reports.

Numbers of a database that does not answer now are kept as they were last seen, so that an outage does not look like
an empty table. Rates are rounded to what they can be trusted for, which also keeps the status from being rewritten
without news.
"""

import math
from typing import Any

from memory_operator.api.spec import Manifest, MemoryIndex
from memory_operator.reconcile import jobs
from memory_operator.reconcile.observed import DatabaseFacts, EmbedderLoad, Observed, Rows
from memory_operator.resources.common import selector


def facts(index: MemoryIndex, seen: Observed, *, replicas: int) -> Manifest:
    """Everything of the status but conditions and generation."""
    sections = {
        **_database(index, seen.facts),
        "backfill": _backfill(seen),
        "embedder": _embedder(index, seen, replicas),
    }
    return {name: section for name, section in sections.items() if section}


def percent(rows: Rows) -> str:
    """Embedded rows of those that may have a vector, rounded down, so that 100% means all."""
    wanted = rows.embedded + rows.pending + rows.quarantined
    if wanted == 0:
        return "100%"
    share = math.floor(1000 * rows.embedded / wanted) / 10
    return f"{share:g}%"


def rounded(value: float) -> float:
    """Two significant digits."""
    if value <= 0:
        return 0.0
    digits = 1 - math.floor(math.log10(value))
    return round(value, digits)


def _database(index: MemoryIndex, seen: DatabaseFacts | None) -> dict[str, Any]:
    if seen is None:
        return {name: index.status.get(name) for name in ("rows", "model", "database")}
    rows = seen.rows
    return {
        "rows": {
            "total": rows.total,
            "embedded": rows.embedded,
            "pending": rows.pending,
            "sensitive": rows.sensitive,
            "quarantined": rows.quarantined,
            "embeddedPercent": percent(rows),
        },
        "model": _without_none({"active": seen.active_model, "next": seen.next_model}),
        "database": _without_none(
            {
                "extensionVersion": seen.extension_version,
                "schemaRevision": seen.schema_revision,
                "indexValid": seen.index_valid,
            }
        ),
    }


def _backfill(seen: Observed) -> Manifest:
    running = jobs.active(seen.jobs_of("backfill"))
    if running is None:
        return {}
    section: Manifest = {"job": running.name}
    rate = seen.rows_per_second
    if rate and seen.facts:
        section["rowsPerSecond"] = rounded(rate)
        section["etaSeconds"] = int(rounded(seen.facts.rows.pending / rate))
    return section


def _embedder(index: MemoryIndex, seen: Observed, replicas: int) -> Manifest:
    section: Manifest = {"url": index.embedder_url}
    if index.runs_embedder:
        ready = seen.embedder.ready if seen.embedder else 0
        section |= {
            "replicas": seen.embedder.replicas if seen.embedder else 0,
            "readyReplicas": ready,
            "ready": f"{ready}/{replicas}",
            "selector": ",".join(f"{key}={value}" for key, value in sorted(selector(index, "embedder").items())),
        }
    return section | (_device(seen.loads) or _last_device(index))


def _device(loads: tuple[EmbedderLoad, ...]) -> Manifest:
    """What truly computes; where pods differ, the worst of them, because that is what someone waits for."""
    known = sorted(
        (load for load in loads if load.device), key=lambda load: (load.device != "cpu", load.device or "", load.pod)
    )
    if not known:
        return {}
    offloaded = [load.gpu_layers_offloaded for load in known if load.gpu_layers_offloaded is not None]
    return _without_none({"device": known[0].device, "gpuLayersOffloaded": min(offloaded) if offloaded else None})


def _last_device(index: MemoryIndex) -> Manifest:
    last = index.status.get("embedder") or {}
    return {key: last[key] for key in ("device", "gpuLayersOffloaded") if key in last}


def _without_none(section: dict[str, Any]) -> Manifest:
    return {key: value for key, value in section.items() if value is not None}
