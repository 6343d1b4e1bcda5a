"""Carries a swap out: looks at the facts, does the one thing that is next, and looks again.

It may be killed at any moment and started again. While it lives it keeps the standby column filled in the background,
so that what is written during the index build and the gate is not missing after the flip.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from memory_recall.errors import ModelMismatch, NoSwap, SwapInProgress, first_of
from memory_recall.hnsw.repair import IndexParameters
from memory_recall.indexing import leases
from memory_recall.indexing.backfill import WorkerPlan
from memory_recall.indexing.embedder_directory import EmbedderDirectory
from memory_recall.indexing.progress import Progress
from memory_recall.indexing.waiting import sleep_unless
from memory_recall.indexing.worker_session import Session
from memory_recall.postgres.connection import Connection, DsnSource
from memory_recall.schema.models_sql import ActiveModel, active_model
from memory_recall.schema.revisions import require_schema
from memory_recall.schema.table import MemoryTable
from memory_recall.swap import facts_sql, state_sql
from memory_recall.swap.gate import Verdict
from memory_recall.swap.machine import OPEN_STAGES, Act, Fill, Stage, SwapFacts, decide, path
from memory_recall.swap.standby_worker import keep_standby
from memory_recall.swap.state_sql import NextModel, SwapRecord

Measure = Callable[[SwapRecord], Awaitable[Verdict]]
Observe = Callable[[SwapRecord, Fill], None]

_LOOK_SECONDS = 0.25
_REST = 4.0  # times as long as counting took, which is a scan until the standby column's queue has its index
_NO_TIMEOUT = 7 * 24 * 3600.0  # an index over millions of rows takes hours; a lost connection is noticed all the same


@dataclass(frozen=True)
class SwapOrder:
    """What a swap is asked for; `target` None goes back to the previous model."""

    target: NextModel | None
    worker: WorkerPlan
    index: IndexParameters
    flip: bool = True
    patience: float = 600.0


class SwapProcess:
    """One run of one swap."""

    def __init__(
        self,
        source: DsnSource,
        directory: EmbedderDirectory,
        order: SwapOrder,
        *,
        measure: Measure | None,
        progress: Progress,
        stop: asyncio.Event,
        observe: Observe = lambda _swap, _fill: None,
    ) -> None:
        self._source = source
        self._directory = directory
        self._order = order
        self._measure = measure
        self._progress = progress
        self._stop = stop
        self._observe = observe
        self._verdict: Verdict | None = None
        self._wanted: int | None = None
        self._pause = _LOOK_SECONDS

    async def run(self) -> SwapRecord:
        """Go as far as the swap goes, and say how far that is.

        Raises:
            SwapInProgress: another swap is open, or another process carries this one out.
            ModelMismatch: the target is the active model already.
            NoSwap: there is no previous model to go back to.
        """
        session = Session(
            self._source,
            name="memory-swap",
            listener=self._progress,
            prepare=leases.lease_swap,
            outage_timeout=self._order.worker.outage_timeout,
            command_timeout=_NO_TIMEOUT,
        )
        async with session:
            await session.run(self._open)
            filled = asyncio.Event()
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._keep_filled(filled))
                    tasks.create_task(self._work(session, filled))
            except BaseExceptionGroup as group:
                raise first_of(group) from None
            return await session.run(self._latest)

    async def _work(self, session: Session, done: asyncio.Event) -> None:
        try:
            while not self._stop.is_set():
                if await session.run(self._step):
                    break
                await sleep_unless(self._stop, self._pause)
        finally:
            done.set()

    async def _keep_filled(self, done: asyncio.Event) -> None:
        await keep_standby(
            self._source,
            self._directory,
            self._order.worker,
            idle_seconds=_LOOK_SECONDS,
            progress=self._progress,
            stop=done,
        )

    async def _table(self, connection: Connection) -> MemoryTable:
        return await require_schema(connection, self._order.worker.table)

    async def _latest(self, connection: Connection) -> SwapRecord:
        found = await state_sql.latest(connection, await self._table(connection))
        if found is None:
            raise NoSwap("There is no swap.", "Start one with memory swap start.")
        return found

    async def _open(self, connection: Connection) -> None:
        """Take up the open swap if it is the one that is asked for, or open it."""
        table = await self._table(connection)
        found = await state_sql.latest(connection, table)
        target = self._order.target
        if found is not None and Stage(found.stage) in OPEN_STAGES:
            _require_same(found, target)
            if Stage(found.stage) in {Stage.REFUSED, Stage.READY}:  # measured anew, by another gate maybe
                await state_sql.advance(connection, table, found, Stage.FILLING)
            return
        previous = found if found is not None and found.stage == Stage.FLIPPED else None
        if target is None:
            await self._open_way_back(connection, table, previous)
            return
        active = await active_model(connection, table)
        if (active.name, active.digest or target.digest) == (target.name, target.digest or active.digest):
            raise ModelMismatch(f"{target.name} is the active model already.", "There is nothing to swap.")
        if previous is not None and _is(previous.from_model, target):
            await state_sql.open_way_back(connection, table, previous.from_model.id, target.embedder_url)
            return
        if previous is not None:
            await state_sql.end(connection, table, previous, Stage.FINISHED, patience=self._order.patience)
        await state_sql.open_swap(connection, table, target)

    async def _open_way_back(self, connection: Connection, table: MemoryTable, previous: SwapRecord | None) -> None:
        if previous is None:
            raise NoSwap(
                "There is no flipped swap to take back.", "Its column was dropped; swap to that model with swap start."
            )
        await state_sql.open_way_back(connection, table, previous.from_model.id, self._directory.url)

    async def _step(self, connection: Connection) -> bool:
        """Do what is next; whether nothing is."""
        table = await self._table(connection)
        swap = await self._latest(connection)
        began = time.monotonic()
        fill = await facts_sql.read_fill(connection, table, wanted=self._wanted)
        self._pause = max(_LOOK_SECONDS, _REST * (time.monotonic() - began))
        self._wanted = fill.wanted or None
        facts = SwapFacts(
            stage=Stage(swap.stage),
            has_column=table.standby_dimensions is not None,
            fill=fill,
            index_valid=await facts_sql.index_valid(connection, table),
            gated=self._measure is not None,
            passed=self._verdict.passed if self._verdict else None,
            flip_wanted=self._order.flip,
        )
        self._observe(swap, fill)
        act = decide(facts)
        if act is not Act.REST:
            await self._carry_out(connection, table, swap, act)
        elif Stage(swap.stage) in OPEN_STAGES - {Stage.REFUSED}:  # everything is done but the flip, which is not wanted
            await self._reach(connection, table, swap, Stage.READY)
        return act is Act.REST

    async def _carry_out(self, connection: Connection, table: MemoryTable, swap: SwapRecord, act: Act) -> None:
        patience = self._order.patience
        if act is Act.ADD_COLUMN:
            await state_sql.add_column(connection, table, swap, patience=patience)
        elif act is Act.FILL:
            await self._reach(connection, table, swap, Stage.FILLING)
        elif act is Act.INDEX:
            await self._reach(connection, table, swap, Stage.INDEXING)
            await facts_sql.complete_column(connection, table)
            await facts_sql.build_index(connection, table, self._order.index)
        elif act is Act.MEASURE and self._measure is not None:
            swap = await self._reach(connection, table, swap, Stage.GATING)
            self._verdict = await self._measure(swap)
        elif act is Act.REFUSE:
            await self._refuse(connection, table, swap)
        elif act is Act.FLIP:
            swap = await self._reach(connection, table, swap, Stage.READY)
            await self._flip(connection, table, swap)

    async def _flip(self, connection: Connection, table: MemoryTable, swap: SwapRecord) -> None:
        try:
            await state_sql.flip(connection, table, swap, patience=self._order.patience)
        except SwapInProgress:
            # The connection may have been lost after the commit: then it was ourselves who moved it.
            if (await self._latest(connection)).stage != Stage.FLIPPED:
                raise

    async def _refuse(self, connection: Connection, table: MemoryTable, swap: SwapRecord) -> None:
        if self._verdict is not None and not self._verdict.passed:
            await state_sql.advance(
                connection, table, swap, Stage.REFUSED, message=self._verdict.message, gate=self._verdict.as_record()
            )
            return
        swap = await self._reach(connection, table, swap, Stage.FILLING)
        fill = await facts_sql.read_fill(connection, table)
        message = (
            f"The next model's embedder refused {fill.quarantined} of {fill.wanted} rows, which would be found by "
            "words alone after the flip."
        )
        await state_sql.advance(connection, table, swap, Stage.REFUSED, message=message)

    async def _reach(self, connection: Connection, table: MemoryTable, swap: SwapRecord, goal: Stage) -> SwapRecord:
        """Write down the stage, by way of those in between."""
        for stage in path(Stage(swap.stage), goal):
            passed = stage is Stage.READY and self._verdict is not None
            await state_sql.advance(
                connection,
                table,
                swap,
                stage,
                message=self._verdict.message if passed and self._verdict else "",
                gate=self._verdict.as_record() if passed and self._verdict else None,
            )
            swap = await self._latest(connection)
        return swap


def _is(model: ActiveModel, target: NextModel) -> bool:
    served = (target.name, target.dimensions, target.digest)
    return (model.name, model.dimensions, model.digest) == served and target.digest is not None


def _require_same(found: SwapRecord, target: NextModel | None) -> None:
    same = target is not None and found.to_model.name == target.name and found.to_model.digest in {None, target.digest}
    if same or (target is None and found.way_back):
        return
    raise SwapInProgress(
        f"A swap to {found.to_model.name} is under way (stage {found.stage}).",
        "Let it go on with memory swap start for that model, or end it with memory swap abort.",
    )
