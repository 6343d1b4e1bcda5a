"""What an index build is given, and when an index is built anew, decided without a database."""

import pytest

from memory_recall.hnsw.build import ServerResources, build_settings, graph_kib
from memory_recall.hnsw.definition import IndexFacts
from memory_recall.hnsw.repair import needs_repair
from memory_recall.indexing.companions.index_check import IndexReport, next_threshold

MIB = 1024
SERVER = ServerResources(
    maintenance_work_mem=64 * MIB, shared_buffers=4096 * MIB, maintenance_workers=2, parallel_workers=8
)
FACTS = IndexFacts("i", exists=True, valid=True, progress=None, ours=True, m=16, ef_construction=64)


def test_a_large_build_gets_what_its_graph_needs() -> None:
    found = build_settings(SERVER, rows=1_000_000, dimensions=1024, m=16)
    assert found.maintenance_work_mem == graph_kib(1_000_000, 1024, 16)
    assert found.maintenance_workers == 4


def test_a_build_beside_a_serving_index_leaves_the_processors_to_recalls() -> None:
    found = build_settings(SERVER, rows=1_000_000, dimensions=1024, m=16, serving=True)
    assert found.maintenance_workers == 0
    assert found.maintenance_work_mem == graph_kib(1_000_000, 1024, 16)


def test_a_small_build_gets_enough_for_its_workers() -> None:
    assert build_settings(SERVER, rows=10, dimensions=384, m=16).maintenance_work_mem == 5 * 32 * MIB


@pytest.mark.parametrize("rows", [10, 10_000_000])
def test_no_build_gets_more_than_the_servers_cache_nor_less_than_its_setting(rows: int) -> None:
    small = ServerResources(64 * MIB, 128 * MIB, 2, 8)
    assert build_settings(small, rows=rows, dimensions=1024, m=16).maintenance_work_mem == 128 * MIB
    generous = ServerResources(2048 * MIB, 128 * MIB, 6, 8)
    found = build_settings(generous, rows=rows, dimensions=1024, m=16)
    assert (found.maintenance_work_mem, found.maintenance_workers) == (2048 * MIB, 6)


def test_an_index_is_repaired_below_the_threshold_and_not_at_it() -> None:
    assert needs_repair(0.84, 0.85)
    assert not needs_repair(0.85, 0.85)
    assert not needs_repair(None, 0.85), "an empty index misses nothing"


def test_an_index_that_a_rebuild_did_not_help_is_not_rebuilt_again() -> None:
    report = IndexReport(FACTS, 0.7, 0.72)
    lowered = next_threshold(0.85, report)
    assert not needs_repair(0.71, lowered)
    assert needs_repair(0.6, lowered), "but it is when it falls below what the rebuild achieved"
    assert next_threshold(0.85, IndexReport(FACTS, 0.7, 0.99)) == 0.85
    assert next_threshold(0.85, IndexReport(FACTS, 0.9)) == 0.85


def test_only_a_valid_index_of_ours_can_have_the_wrong_parameters() -> None:
    assert FACTS.differs(8, 64)
    assert FACTS.differs(16, 65)
    assert not FACTS.differs(16, 64)
    theirs = IndexFacts("x", exists=True, valid=True, progress=None, ours=False, m=4, ef_construction=64)
    assert not theirs.differs(16, 64)
    broken = IndexFacts("i", exists=True, valid=False, progress=None, ours=True, m=4, ef_construction=64)
    assert not broken.differs(16, 64), "it is built anew for being invalid"
