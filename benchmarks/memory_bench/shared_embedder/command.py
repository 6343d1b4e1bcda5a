"""The command `shared-embedder`, which measures what callers take from one another at one embedder."""

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from memory_bench.embedder.machine import describe_machine
from memory_bench.report import write_json
from memory_bench.servers import memory_embedder
from memory_bench.shared_embedder.measure import KEYS, ask, fill
from tests.support.model_files.cache import DEFAULT_MODEL_FILE

_MOST_SLOWER = 1.5
_MOST_UNEQUAL = 0.2


def shared_embedder(
    texts: Annotated[int, typer.Option(min=8, help="Documents of the caller with much work.")] = 20_000,
    seconds: Annotated[float, typer.Option(min=1, help="How long each part takes.")] = 60.0,
    model: Annotated[Path, typer.Option(help="The model file to serve.")] = DEFAULT_MODEL_FILE,
    output: Annotated[Path | None, typer.Option(help="The file that the figures are written to, as JSON.")] = None,
) -> None:
    """Measure queries of two callers alone and beside a third one's documents, and how two such callers share.

    The last line is JSON: how many times as long as alone a query takes beside the documents, at the median, and how
    much less of two callers' documents are embedded for the one that has less. The exit status is 1 if the first is
    more than 1.5 or the second more than .2.

    Example: python -m memory_bench shared-embedder --seconds 20
    """
    with tempfile.TemporaryDirectory(prefix="shared-embedder-") as scratch:
        keys = Path(scratch, "keys")
        keys.write_text("\n".join(KEYS), encoding="utf-8")
        options = ("--gpu-layers", "0", "--allow-cpu", "--api-key-file", str(keys))
        with memory_embedder(model, Path(scratch, "log"), options) as server:
            figures = asyncio.run(_measure(server.url, texts, seconds))
    if output is not None:
        write_json(output, {"machine": describe_machine(), "figures": figures})
    line = {name: figures[name] for name in ("query_p50_beside_alone", "share_unequal", "documents")}
    print(json.dumps(line))
    met = line["query_p50_beside_alone"] <= _MOST_SLOWER and line["share_unequal"] <= _MOST_UNEQUAL
    raise typer.Exit(0 if met else 1)


async def _measure(url: str, texts: int, seconds: float) -> dict[str, Any]:
    alone = await ask(url, seconds, "alone")
    beside, documents = await asyncio.gather(ask(url, seconds, "beside"), fill(url, KEYS[2], texts, seconds))
    shares = await asyncio.gather(*(fill(url, key, texts, seconds) for key in KEYS[2:]))
    return {
        "query_p50_beside_alone": round(beside.p50_ms / alone.p50_ms, 2),
        "share_unequal": round(1 - min(shares) / max(shares), 3) if max(shares) else 1.0,
        "documents": documents,
        "shares": list(shares),
        "alone": {"p50_ms": alone.p50_ms, "p95_ms": alone.p95_ms, "queries": alone.queries},
        "beside": {"p50_ms": beside.p50_ms, "p95_ms": beside.p95_ms, "queries": beside.queries},
        "seconds": seconds,
    }
