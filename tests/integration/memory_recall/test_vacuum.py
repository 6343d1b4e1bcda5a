"""The vacuums that the documents offer take the vector of a row that turned sensitive out of the files they name."""

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
    await _a_row_turns_sensitive(own_bench)
    assert holds_the_vector(await _file(own_bench, "idx_memories_embedding"))
    await own_bench.execute(documented("INDEX_CLEANUP ON"))
    assert not holds_the_vector(await _file(own_bench, "idx_memories_embedding"))


async def test_only_the_full_vacuum_takes_it_out_of_the_table_s_pages(own_bench: Workbench) -> None:
    """The other frees its place there, and Postgres leaves the bytes of what is free; the page says both."""
    await _a_row_turns_sensitive(own_bench)
    await own_bench.execute(documented("INDEX_CLEANUP ON"))
    assert holds_the_vector(await _file(own_bench, "memories"))
    await own_bench.execute(documented("FULL"))
    assert not holds_the_vector(await _file(own_bench, "memories"))
    assert not holds_the_vector(await _file(own_bench, "idx_memories_embedding"))


def documented(option: str) -> str:
    """Return the vacuum with this option, as the page has it."""
    found = re.search(rf"`(VACUUM \({option}\) memories;)`", PAGE.read_text())
    assert found
    return found[1]


async def _a_row_turns_sensitive(bench: Workbench) -> None:
    await bench.insert("stays", "turns sensitive")
    await bench.backfill()
    await build_index(DsnText(bench.database.dsn), "memories", IndexParameters())
    await bench.execute(f"UPDATE memories SET embedding = '{VECTOR}' WHERE id = 2")
    await bench.execute("UPDATE memories SET is_sensitive = true WHERE id = 2")
    assert await bench.value("SELECT count(embedding) FROM memories") == 1


async def _file(bench: Workbench, relation: str) -> Path:
    """The file of a table or index, once every page has been written to it."""
    admin = await asyncpg.connect(bench.database.superuser_dsn)
    await admin.execute("CHECKPOINT")
    directory, name = "current_setting('data_directory')", f"pg_relation_filepath('{relation}')"
    path = await admin.fetchval(f"SELECT {directory} || '/' || {name}")
    await admin.close()
    return Path(path)


def holds_the_vector(file: Path) -> bool:
    return np.array(VECTOR, dtype="<f2").tobytes() in file.read_bytes()
