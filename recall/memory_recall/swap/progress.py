"""How far a swap is, for people at a terminal and for logs."""

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from memory_recall.indexing.metrics import WorkerMetrics
from memory_recall.indexing.progress import LogProgress
from memory_recall.swap.machine import Fill
from memory_recall.swap.state_sql import SwapRecord


class SwapProgress(LogProgress):
    """Logs, and on a terminal one bar that names the stage."""

    def __init__(self, metrics: WorkerMetrics) -> None:
        super().__init__(metrics, worker="swap")
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("preparing", total=None)
        self._stage = ""

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def observe(self, swap: SwapRecord, fill: Fill) -> None:
        """Show the stage and how full the second column is."""
        self._bar.update(
            self._task, description=swap.stage, total=fill.wanted or None, completed=fill.wanted - fill.pending
        )
        if swap.stage != self._stage and not sys.stderr.isatty():
            self._log.info("stage", stage=swap.stage, rows=fill.wanted, pending=fill.pending)
        self._stage = swap.stage
