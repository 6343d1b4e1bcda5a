"""The commands over a labelled set as processes, with a real Postgres and an embedder over HTTP."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.memory_recall.fake_embedder import FakeEmbedder

REPOSITORY = Path(__file__).resolve().parents[3]
TEXTS = ["the zigbee dongle hangs", "scrub the zfs pool", "tomatoes like sun", "renew the certificate"]


async def bench(*arguments: str, **environment: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "memory_bench", *arguments, cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": "benchmarks", **environment},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    directory = tmp_path / "tiny"
    directory.mkdir()
    files: dict[str, list[dict[str, Any]]] = {
        "corpus": [{"id": n, "content": text, "conv": "a"} for n, text in enumerate(TEXTS, 1)],
        "queries": [{"query_id": str(n), "text": text, "conv": "a"} for n, text in enumerate(TEXTS, 1)],
        "qrels": [{"query_id": str(n), "relevant_ids": [n]} for n in range(1, 5)],
    }
    for name, records in files.items():
        (directory / f"{name}.jsonl").write_text("\n".join(json.dumps(one) for one in records), encoding="utf-8")
    return directory


async def test_every_built_in_retriever_runs_and_results_can_be_compared(
    dataset: Path, tmp_path: Path, bare_database: Any
) -> None:
    """One command runs all of them on one set, writes results and report, and prints one line of JSON."""
    async with FakeEmbedder() as embedder:
        code, out, err = await bench(
            "run", str(dataset), "--embedder-url", embedder.url, "--output", str(tmp_path / "out"),
            MEMORY_BENCH_DATABASE_URL=bare_database.superuser_dsn, MEMORY_INDEX_CACHE=str(tmp_path / "cache"),
        )  # fmt: skip
        asked = embedder.requests
        code_again, _, _ = await bench(
            "run", str(dataset), "--embedder-url", embedder.url, "--output", str(tmp_path / "again"),
            "--retriever", "hybrid", "--baseline", "hybrid",
            MEMORY_BENCH_DATABASE_URL=bare_database.superuser_dsn, MEMORY_INDEX_CACHE=str(tmp_path / "cache"),
        )  # fmt: skip
    assert (code, code_again) == (0, 0), err
    scores = json.loads(out)["tiny"]
    assert set(scores) > {"sqlite-fts5", "pg-ts-rank", "pg-bm25", "dense-exact", "dense-hnsw", "hybrid"}
    assert set(scores.values()) == {1.0}
    assert embedder.requests == asked  # the second run took the vectors from the cache
    written = {path.name for path in (tmp_path / "out" / "tiny").iterdir()}
    assert {"report.md", "manifest.json", "summary.json"} <= written
    files = [str(tmp_path / "out" / "tiny" / "raw" / f"{name}.json") for name in ("pg-ts-rank", "hybrid")]
    code, out, _ = await bench("compare", *files)
    assert (code, json.loads(out)["difference"]) == (0, 0.0)


async def test_validate_names_the_line_and_stats_show_no_text(dataset: Path) -> None:
    """`stats` prints aggregate numbers only, and `validate` exits with status 1 at a mistake."""
    code, out, _ = await bench("stats", str(dataset))
    assert code == 0
    assert json.loads(out)["memories"] == 4
    assert "zigbee" not in out
    assert (await bench("validate", str(dataset)))[0] == 0
    (dataset / "qrels.jsonl").write_text('{"query_id": "1", "relevant_ids": [9]}')
    code, _, err = await bench("validate", str(dataset))
    assert code == 1
    assert "qrels.jsonl, line 1" in err.replace("\n", " ")
