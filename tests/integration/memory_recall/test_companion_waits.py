"""What a companion of the sync worker waits for ends once its work goes on, and not three minutes later."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from memory_recall.errors import DatabaseRejected, MemoryIndexError
from memory_recall.graph.filling import Pass
from memory_recall.indexing.companions import graph_filling
from memory_recall.postgres.connection import DsnText
from memory_recall.retrying import Awaited
from memory_recall.swap import standby
from tests.integration.memory_recall.workbench import Ear, Workbench, until


@dataclass
class Waiting(Ear):
    """Remembers which waits have begun and which have ended."""

    begun: list[object] = field(default_factory=list)
    ended: list[object] = field(default_factory=list)

    def attempt_failed(self, what: str, error: MemoryIndexError, wait: object) -> None:
        super().attempt_failed(what, error, wait)
        self.begun.append(wait)

    def wait_ended(self, wait: object) -> None:
        if wait in self.begun:
            self.ended.append(wait)


@pytest.mark.parametrize("what", [Awaited.CONCEPT_GRAPH, Awaited.NEXT_MODEL])
async def test_a_companion_that_goes_on_after_an_error_waits_no_longer(
    bench: Workbench, monkeypatch: pytest.MonkeyPatch, what: Awaited
) -> None:
    outcomes: list[Any] = [DatabaseRejected("It is refused."), None]

    async def work(*_: object) -> Any:
        outcome = outcomes.pop(0) if len(outcomes) > 1 else outcomes[0]
        if isinstance(outcome, MemoryIndexError):
            raise outcome
        return Pass() if what is Awaited.CONCEPT_GRAPH else None

    progress, source = Waiting(), DsnText(bench.database.dsn)
    monkeypatch.setattr(graph_filling, "_pass", work)
    monkeypatch.setattr(standby._Filler, "fill", work)
    monkeypatch.setattr(graph_filling, "_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(standby, "_RETRY_SECONDS", 0.01)
    if what is Awaited.CONCEPT_GRAPH:
        companion = graph_filling.maintain_graph(source, bench.plan, progress, bench.stop)
    else:
        companion = standby.maintain_standby(source, None, bench.plan, progress, bench.stop)  # type: ignore[arg-type]
    task = asyncio.create_task(companion)
    await until(lambda: bool(progress.ended))
    bench.stop.set()
    await task
    assert (progress.begun, progress.ended[0]) == ([what], what)
