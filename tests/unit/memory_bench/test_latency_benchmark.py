"""The latency benchmark: its figures on invented times, and what drops caches and counts reads, on real files."""

import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from memory_bench.latency.conditions import BLOCK, COLD, WARM, Asked, Condition, Measured, measure_in_turn
from memory_bench.latency.designs import EMBEDDER_STOPPED, LEXICAL_ONLY, OURS, PLAIN, WITH_GRAPH, Opened, Question
from memory_bench.latency.page_cache import Dropped, bring, drop
from memory_bench.latency.reads import Reads, disk_bytes
from memory_bench.latency.results import InTurn, SizeResult, figures, table
from memory_bench.latency.warming import Warming
from memory_recall import EmbeddedQuery

ROOT = Path(__file__).resolve().parents[3]
MIB = 2**20


def measured(arm: str, condition: Condition, milliseconds: float, disk: float = 0) -> Measured:
    return Measured(arm, condition, (milliseconds,) * 20, Reads(700, 30, disk), (), 0, in_memory=condition == WARM)


def size(rows: int, ours: float, plain: float) -> SizeResult:
    """Return a result in which cold caches make our recall 10 times slower and the plain design 20 times."""
    warm = {OURS: ours, PLAIN: plain, LEXICAL_ONLY: ours / 2, EMBEDDER_STOPPED: ours / 2 + 0.25}
    cold = {arm: time * (20 if arm == PLAIN else 10) for arm, time in warm.items()}
    arms = (
        *(measured(arm, WARM, time) for arm, time in warm.items()),
        *(measured(arm, COLD, time, rows * 3 + 0.4) for arm, time in cold.items()),
    )
    shares = {"all": 0.995, "one user of ten": 0.99}
    hnsw = {"hnsw": rows / 1000}, {"hnsw": rows * 2**10}
    return SizeResult(rows, arms, shares, 0.98, *hnsw, huge_pages=False, warming=warming(ours * 1.5))


def warming(after: float) -> Warming:
    """Return a result of two rounds; recalls beside the warmer take nine tenths of the cold ones' time."""
    return Warming(
        extension=True,
        seconds=(3.0, 4.0),
        after=(after,) * 20,
        meanwhile=(9.0, 18.0),
        cold=(20.0, 10.0),
        after_vacuum=(after + 1,) * 20,
    )


RESULTS = [size(5_000, 4.0, 8.0), size(1_000_000, 12.0, 1200.0)]
IN_TURN = InTurn((2.0,) * 20, (7.0,) * 20)


def test_figures_compare_95th_percentiles_of_the_same_condition() -> None:
    """A ratio of warm times and one of cold times differ by how much colder caches slow each design down.

    The two sizes are compared by what was measured in turn, not by what was measured half an hour apart.
    """
    assert figures(RESULTS, IN_TURN) == {
        "p95_1m_vs_plain": 0.01, "p95_1m_vs_5k": 3.5, "p95_5k_vs_plain": 0.5,
        "cold_p95_1m_ms": 120.0, "cold_p95_1m_ms_read_ahead": 18.0,
        "seconds_to_warm_1m": 4.0, "while_reading_1m_vs_cold": 0.9, "after_vacuum_p95_1m_ms": 19.0,
        "cold_1m_vs_plain_cold": 0.005, "bytes_read_cold": 3_000_000,
        "index_gib": 0.9537, "build_minutes": 16.6667,
        "embedder_stopped_adds_ms": 0.25, "or_overlap": 0.98, "ann_recall": 0.99,
    }  # fmt: skip


def test_figures_of_a_million_rows_are_absent_where_there_are_fewer() -> None:
    """Each size has its own index, build time and cold ratio in the results nevertheless."""
    assert set(figures(RESULTS[:1], None)) == {
        "p95_5k_vs_plain",
        "embedder_stopped_adds_ms",
        "or_overlap",
        "ann_recall",
    }
    small = RESULTS[0].summary()
    assert (small["index_gib"], small["build_minutes"]) == (0.0048, 0.08)
    assert small["p95_vs_plain"] == {"warm": 0.5, "cold": 0.25}


def test_seconds_to_warm_are_absent_where_recalls_take_more_than_twice_the_warm_time_afterwards() -> None:
    """So is the comparison with cold recalls where none fell into the time of the reading."""
    slow = replace(RESULTS[1], warming=replace(warming(24.1), meanwhile=(), cold=()))
    assert figures(RESULTS, IN_TURN).keys() - figures([RESULTS[0], slow], IN_TURN).keys() == {
        "seconds_to_warm_1m",
        "while_reading_1m_vs_cold",
    }
    assert "| 1,000,000 | pg_prewarm | 4.0 | 24.1 / 120.0 / 12.0 | - |" in table([slow])


def test_the_graph_leg_is_compared_with_recall_without_it() -> None:
    """What it adds to the warm 95th percentile is given apart for a million rows."""
    graph = [
        replace(one, arms=(*one.arms, measured(WITH_GRAPH, WARM, one.p(OURS, 95) + added)))
        for one, added in zip(RESULTS, (1.5, 9.0), strict=True)
    ]
    assert figures(graph, IN_TURN) == {
        **figures(RESULTS, IN_TURN),
        "graph_added_p95_1m_ms": 9.0,
        "graph_added_p95_ms": 1.5,
    }


def test_the_table_shows_both_conditions() -> None:
    """A line has the times, buffers and MiB from the disk of one design, and another one what the index is."""
    assert "| 1,000,000 | ours | 12.0 / 12.0 | 700 / 30 | 0.00 | 120.0 / 120.0 | 700 / 30 | 2.86 |" in table(RESULTS)
    assert "| 5,000 | 0.005 | 0.1 | 0.995 / 0.990 | 0.980 | no |" in table(RESULTS)
    assert "| 0.980 | yes |" in table([replace(RESULTS[0], huge_pages=True)])


class Sizes:
    """A server of two databases, and a design that answers at each; keeps which database answered which question."""

    name = "one"

    def __init__(self, directory: Path) -> None:
        self.data = directory
        self.asked: list[tuple[str, str]] = []
        self.drops = 0

    def restart(self, meanwhile: Callable[[], Dropped]) -> Dropped:
        self.drops += 1
        return meanwhile()

    def dsn(self, database: str) -> str:
        return database

    @asynccontextmanager
    async def open(self, dsn: str) -> AsyncIterator[Opened]:
        async def answer(question: Question) -> None:
            self.asked.append((dsn, question.text))

        yield Opened(answer, None)


async def test_two_sizes_are_asked_in_turn_by_blocks_after_both_were_warmed_up(tmp_path: Path) -> None:
    """So that whatever else the machine does slows both down."""
    (tmp_path / "base").mkdir()
    sizes: Any = Sizes(tmp_path)
    vector = EmbeddedQuery([0.0], "model")
    asked = {
        name: Asked([Question("warm", vector)], [Question(str(one), vector) for one in range(count)], [])
        for name, count in (("small", BLOCK + 2), ("large", BLOCK + 1))
    }
    times = await measure_in_turn(sizes, sizes, asked)
    assert {name: len(found) for name, found in times.items()} == {"small": BLOCK + 2, "large": BLOCK + 1}
    first = [(name, str(one)) for name in ("small", "large") for one in range(BLOCK)]
    rest = [("small", str(BLOCK)), ("small", str(BLOCK + 1)), ("large", str(BLOCK))]
    assert sizes.asked == [("small", "warm"), ("large", "warm"), *first, *rest]
    assert sizes.drops == 1


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A directory below the clone, which is on a disk where the directory of temporary files may be in memory."""
    (ROOT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as directory:
        yield Path(directory)


def test_dropped_pages_are_read_from_the_disk_again(on_disk: Path) -> None:
    """Bytes that an ended child read are counted, though pages that are in memory already are not."""
    file = on_disk / "below" / "file"
    file.parent.mkdir()
    file.write_bytes(bytes(4 * MIB))
    (on_disk / "empty").touch()
    assert drop(on_disk) == Dropped(4 * MIB, 0)
    read = []
    for _ in range(2):
        before = disk_bytes(psutil.Process())
        subprocess.run(["cksum", str(file)], check=True, capture_output=True)
        read.append(disk_bytes(psutil.Process()) - before)
    assert read[0] >= 4 * MIB
    assert read[1] < MIB


def test_files_that_were_brought_into_memory_are_not_read_from_the_disk(on_disk: Path) -> None:
    file = on_disk / "below" / "file"
    file.parent.mkdir()
    file.write_bytes(bytes(4 * MIB))
    assert drop(on_disk).kept == 0
    assert bring(on_disk, room=4 * MIB) == 4 * MIB
    before = disk_bytes(psutil.Process())
    subprocess.run(["cksum", str(file)], check=True, capture_output=True)
    assert disk_bytes(psutil.Process()) - before < MIB


def test_files_that_do_not_fit_into_memory_are_not_brought_in(on_disk: Path) -> None:
    (on_disk / "file").write_bytes(bytes(4 * MIB))
    assert drop(on_disk).kept == 0
    assert bring(on_disk, room=4 * MIB - 1) == 0
    before = disk_bytes(psutil.Process())
    subprocess.run(["cksum", str(on_disk / "file")], check=True, capture_output=True)
    assert disk_bytes(psutil.Process()) - before >= 4 * MIB


def test_pages_that_stay_in_memory_are_counted() -> None:
    """A file system in memory cannot give pages back."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        (Path(directory) / "file").write_bytes(bytes(range(256)) * 4096)
        assert drop(Path(directory)) == Dropped(MIB, MIB)
