"""The command `backfill` at a small size, and its measurements where something goes wrong."""

from pathlib import Path

import pytest

from memory_bench.backfill import killed_worker, null_embedder, user_updates
from memory_bench.postgres import MeasuredServer

ROOT = Path(__file__).resolve().parents[3]


async def test_updates_of_other_columns_are_compared_before_and_after_the_adoption(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the backfill leaves room on each page, more of them touch no index than on the full pages before it."""
    monkeypatch.setattr(user_updates, "UPDATES_A_ROW", 3)
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "benchmarks"))  # for the process that backfills
    async with MeasuredServer() as server:
        found = await user_updates.measure(server, rows=600)
    assert found["hot"]["after"] > found["hot"]["before"]
    assert found["user_update_ratio"] > 0 < found["processor_ratio"]


async def test_a_text_that_is_sent_twice_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    once = killed_worker.CountingEmbedder._respond

    def twice(self: killed_worker.CountingEmbedder, path: str, body: bytes) -> bytes:
        once(self, path, body)
        return once(self, path, body)

    monkeypatch.setattr(killed_worker.CountingEmbedder, "_respond", twice)
    async with MeasuredServer() as server:
        assert (await killed_worker.measure(server, rows=1000))["double_embedded"] > 0


async def test_a_run_that_fails_gives_no_figures() -> None:
    with pytest.raises(RuntimeError, match="bare-update ended with status"):
        await null_embedder.run_process("bare-update", "postgresql://nobody@127.0.0.1:1/none", "1")
