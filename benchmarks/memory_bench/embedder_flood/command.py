"""The command `embedder-flood`, which floods an embedder and measures how well other callers are served meanwhile."""

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import httpx
import typer

from memory_bench.embedder.machine import describe_machine
from memory_bench.embedder_flood.flood import flood
from memory_bench.embedder_flood.poisoning import POISON
from memory_bench.report import write_json
from memory_bench.servers import memory_embedder
from tests.support.model_files.altered import write_altered
from tests.support.model_files.cache import DEFAULT_MODEL_FILE

# As the operator starts an embedder on a CPU. Its memory limit is 2 GiB, which the peak is compared with.
_OPTIONS = ("--gpu-layers", "0", "--allow-cpu")


def embedder_flood(
    count: Annotated[int, typer.Option(min=20, help="Requests of the flood.")] = 10_000,
    stalled: Annotated[
        float, typer.Option(min=0.01, max=1.0, help="Fraction of the clients that hold connections open.")
    ] = 1.0,
    callers: Annotated[int, typer.Option(min=1, max=2500, help="Callers that ask at the same time.")] = 2000,
    model: Annotated[Path, typer.Option(help="The model file to serve.")] = DEFAULT_MODEL_FILE,
    output: Annotated[Path | None, typer.Option(help="The file that the outcome is written to, as JSON.")] = None,
) -> None:
    """Flood an embedder with requests while 704 clients hold further connections open.

    Of the requests, 30 % are malformed and 1 % are made to exhaust the server. In the served copy of the model one word
    has no finite vector, and a further tenth of the requests has a text with this word in one of ten. The exit status
    is 1 if the server dies, leaves a request unanswered, answers with a server error, keeps a stalled connection open
    too long, exceeds its memory limit, makes other callers wait too long, fails a request for the text of another, or
    leaves one of 2,000 callers that ask at the same time without an answer.

    Example: python -m memory_bench embedder-flood --count 1000
    """
    with tempfile.TemporaryDirectory(prefix="embedder-flood-") as scratch:
        served = Path(scratch, model.name)
        write_altered(model, served, poisoned_word=POISON)
        with memory_embedder(served, Path(scratch, "log"), _OPTIONS) as server:
            openapi = httpx.get(f"{server.url}/openapi.json").raise_for_status().json()
            sys.stderr.write(f"Sending {count} requests.\n")
            outcome = asyncio.run(flood(server, count, openapi, stalled, callers))
    if output is not None:
        write_json(output, {"machine": describe_machine(), "outcome": outcome.line(), "details": outcome.details()})
    print(json.dumps(outcome.line()))
    raise typer.Exit(0 if outcome.passed else 1)
