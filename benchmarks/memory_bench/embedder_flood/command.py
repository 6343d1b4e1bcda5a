"""The command `embedder-flood`: sends valid and malformed requests to a server process."""

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import httpx
import typer

from memory_bench.embedder.machine import describe_machine
from memory_bench.embedder_flood.bodies import requests
from memory_bench.embedder_flood.flood import flood
from memory_bench.report import write_json
from memory_bench.servers import DEFAULT_MODEL_FILE, WITHOUT_QUERY_CACHE, memory_embedder


def embedder_flood(
    count: Annotated[
        int, typer.Option(min=20, help="Measured requests, which follow a warm-up of a fifth as many.")
    ] = 10_000,
    model: Annotated[Path, typer.Option(help="The model file to serve.")] = DEFAULT_MODEL_FILE,
    output: Annotated[Path | None, typer.Option(help="The file that the outcome is written to, as JSON.")] = None,
) -> None:
    """Send valid and malformed requests to an embedder; exit status 1 if it fails, dies or uses ever more memory.

    Example: python -m memory_bench embedder-flood --count 1000
    """
    with (
        tempfile.TemporaryDirectory(prefix="embedder-flood-") as scratch,
        memory_embedder(model, Path(scratch, "log"), WITHOUT_QUERY_CACHE) as server,
    ):
        openapi = httpx.get(f"{server.url}/openapi.json").raise_for_status().json()
        sys.stderr.write(f"Sending {count // 5} requests to warm up, then {count}.\n")
        warm_up, measured = list(requests(count // 5, openapi, 1)), list(requests(count, openapi, 2))
        outcome = asyncio.run(flood(server.url, server.pid, warm_up, measured))
    if output is not None:
        write_json(output, {"machine": describe_machine(), "outcome": outcome.as_dict()})
    print(json.dumps(outcome.as_dict()))
    raise typer.Exit(0 if outcome.passed else 1)
