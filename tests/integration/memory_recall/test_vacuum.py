"""The vacuum that the documents offer takes the vector of a row that turned sensitive out of the vector index."""

import re
from pathlib import Path

import asyncpg
import numpy as np
import pytest

from memory_recall.hnsw.repair import IndexParameters, build_index
from memory_recall.postgres.connection import DsnText
from tests.integration.memory_recall.workbench import Workbench

PAGE = Path(__file__).resolve().parents[3] / "docs" / "database.md"
VECTOR = [0.5, -0.5, 0.5, -0.5, 0.0, 0.0, 0.0, 0.0]  # of length one, as the index stores it


@pytest.mark.finding("L2")
async def test_the_documented_vacuum_overwrites_a_sensitive_row_s_vector_in_the_index(own_bench: Workbench) -> None:
    """L2: until then the bytes are in the index's file, although no statement sees them."""
    bench = own_bench
    documented = re.search(r"`(VACUUM \(INDEX_CLEANUP ON\) memories;)`", PAGE.read_text())
    assert documented
    await bench.insert("stays", "turns sensitive")
    await bench.backfill()
    await build_index(DsnText(bench.database.dsn), "memories", IndexParameters())
    await bench.execute(f"UPDATE memories SET embedding = '{VECTOR}' WHERE id = 2")
    await bench.execute("UPDATE memories SET is_sensitive = true WHERE id = 2")
    assert await bench.value("SELECT count(embedding) FROM memories") == 1
    assert holds_the_vector(await _index_file(bench))
    await bench.execute(documented[1])
    assert not holds_the_vector(await _index_file(bench))


async def _index_file(bench: Workbench) -> Path:
    """The index's file, once every page has been written to it."""
    admin = await asyncpg.connect(bench.database.superuser_dsn)
    await admin.execute("CHECKPOINT")
    directory, name = "current_setting('data_directory')", "pg_relation_filepath('idx_memories_embedding')"
    path = await admin.fetchval(f"SELECT {directory} || '/' || {name}")
    await admin.close()
    return Path(path)


def holds_the_vector(file: Path) -> bool:
    return np.array(VECTOR, dtype="<f2").tobytes() in file.read_bytes()
