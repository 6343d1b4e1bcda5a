"""Carries out a swap: reads the facts, takes the next action, and reads the facts again.

The process may be killed at any moment and started again. While the process runs, it also fills the standby column in
the background, so that rows that are written during the index build and the measurement have a vector after the flip.
"""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from memory_recall.embedding.canary import is_same_file, may_be_same_file
from memory_recall.embedding.served_model import ServedModel
from memory_recall.errors import EmbedderUnavailable, ModelMismatch, NoSwap, SwapInProgress, first_of
from memory_recall.hnsw.repair import IndexParameters
from memory_recall.indexing import leases_sql
from memory_recall.indexing.embedders import EmbedderDirectory
from memory_recall.indexing.pipeline import sleep_unless
from memory_recall.indexing.progress import LogProgress, Progress, ShownBar, WorkerMetrics
from memory_recall.indexing.usual_cosine import find_usual_cosine
from memory_recall.indexing.worker import WorkerPlan, worker_session
from memory_recall.postgres.connection import Connection, DsnSource
from memory_recall.postgres.session import Session
from memory_recall.retrying import Awaited, Backoff, Retrying, retry_outage
from memory_recall.schema.models_sql import RecordedModel, active_model, record_address
from memory_recall.schema.requirements.dependents import require_no_dependents
from memory_recall.schema.revisions import require_schema
from memory_recall.schema.table import ACTIVE, STANDBY, MemoryTable, describe
from memory_recall.swap import state_sql
from memory_recall.swap.gate import Verdict
from memory_recall.swap.machine import OPEN_STAGES, Action, Fill, GateOutcome, Stage, SwapFacts, decide, path
from memory_recall.swap.standby import fill_standby
from memory_recall.swap.state_sql import SwapRecord

T = TypeVar("T")
Measure = Callable[[SwapRecord, Retrying], Awaitable[Verdict]]
Observe = Callable[[SwapRecord, Fill], None]

_POLL_SECONDS = 0.25
_REST_FACTOR = 4.0  # times as long as counting took, which scans the table until the queue has its index
_AWAY = Backoff(first=1.0, longest=10.0, jitter=0.5)
_COMMAND_TIMEOUT = 7 * 24 * 3600.0  # seconds; an index over millions of rows takes hours to build


@dataclass(frozen=True)
class SwapRequest:
    """The request for a swap.

    If `target` is None, the swap returns to the previous model. If `flip` is False, the swap stops before the flip.
    Adding the column, flipping and dropping the column of an earlier swap need a lock on the table for a moment;
    `lock_seconds` limits how long each of them tries to get that lock.
    """

    target: ServedModel | None
    worker: WorkerPlan
    index: IndexParameters
    flip: bool = True
    lock_seconds: float = 600.0


class SwapProcess:
    """One run of a swap, which a later run can continue.

    Args:
        source: the source of the connection string, which is read at each connect.
        directory: the known embedders; the configured embedder serves the model that is to become active.
        request: what is to be swapped, and how.
        measure: judges the next model once its column is complete; None flips without a measurement. It is given what
            waits for an embedder that is away.
        progress: is told how far the work is.
        stop: ends the run early when it is set; another run continues the swap.
        observe: called before each action, with the swap and the counts of the standby column.
    """

    def __init__(
        self,
        source: DsnSource,
        directory: EmbedderDirectory,
        request: SwapRequest,
        *,
        measure: Measure | None,
        progress: Progress,
        stop: asyncio.Event,
        observe: Observe = lambda _swap, _fill: None,
    ) -> None:
        self._source = source
        self._directory = directory
        self._request = request
        self._measure = measure
        self._progress = progress
        self._stop = stop
        self._observe = observe
        self._verdict: Verdict | None = None
        self._wanted: int | None = None
        self._pause = _POLL_SECONDS

    async def run(self) -> SwapRecord:
        """Take one action after another until none is left; return the swap's record.

        Raises:
            SwapInProgress: another swap is open, or another process carries out the requested one.
            ModelMismatch: the requested model is active already.
            NoSwap: a return to the previous model was requested, but there is none.
            EmbedderUnavailable: an embedder was unavailable for longer than the worker's limit.
            LockNotAvailable: other sessions used the table for longer than `lock_seconds`. Another run goes on.
        """
        session = worker_session(
            self._source,
            self._request.worker,
            self._progress,
            name="memory-swap",
            prepare=self._lease,
            command_timeout=_COMMAND_TIMEOUT,
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

    async def _lease(self, connection: Connection) -> None:
        await leases_sql.lease_swap(connection, await describe(connection, self._request.worker.table))

    async def _work(self, session: Session, done: asyncio.Event) -> None:
        try:
            while not self._stop.is_set():
                if await session.run(self._step):
                    break
                await sleep_unless(self._stop, self._pause)
        except EmbedderUnavailable:  # it is not waited for once the run is to end early
            if not self._stop.is_set():
                raise
        finally:
            done.set()

    async def _keep_filled(self, done: asyncio.Event) -> None:
        await fill_standby(
            self._source,
            self._directory,
            self._request.worker,
            idle_seconds=_POLL_SECONDS,
            progress=self._progress,
            stop=done,
        )

    async def _table(self, connection: Connection) -> MemoryTable:
        return await require_schema(connection, self._request.worker.table)

    async def _latest(self, connection: Connection) -> SwapRecord:
        found = await state_sql.latest(connection, await self._table(connection))
        if found is None:
            raise NoSwap("There is no swap.", "Start one with memory swap start.")
        return found

    async def _open(self, connection: Connection) -> None:
        """Continue the open swap, or open the requested swap if none is open.

        Whoever follows an address of the database is to ask the embedder of this run, not that of an earlier one.

        Raises:
            SwapInProgress: the open swap is not the requested swap.
            SchemaUnsupported: something of others depends on a vector column.
        """
        table = await self._table(connection)
        found = await state_sql.latest(connection, table)
        target = self._request.target
        if found is not None and Stage(found.stage) in OPEN_STAGES:
            _require_same(found, target)
            if not found.is_rollback:
                await self._require_no_dependents(connection, table)
            await record_address(connection, table, found.to_model.id, self._directory.recorded_url)
            if Stage(found.stage) in {Stage.REFUSED, Stage.READY}:  # measured again, perhaps by another gate
                await state_sql.advance(connection, table, found, Stage.FILLING)
            return
        previous = found if found is not None and found.stage == Stage.FLIPPED else None
        if target is None:
            await self._open_rollback(connection, table, previous)
            return
        active = await active_model(connection, table)
        if active.name == target.name and may_be_same_file(active.digest, target.digest):
            raise ModelMismatch(f"{target.name} is the active model already.", "There is nothing to swap.")
        if previous is not None and _is_target(previous.from_model, target):
            await state_sql.open_rollback(connection, table, previous.from_model.id, self._directory.recorded_url)
            return
        await self._require_no_dependents(connection, table)
        if previous is not None:
            await state_sql.end(connection, table, previous, Stage.FINISHED, give_up_after=self._request.lock_seconds)
        await state_sql.open_swap(connection, table, target, self._directory.recorded_url)

    async def _require_no_dependents(self, connection: Connection, table: MemoryTable) -> None:
        """Refuse to exchange columns of which a view would then show the former model's, and which cannot be dropped.

        A return to the previous model is not refused: it gives each column the name back that the view means.
        """
        await require_no_dependents(connection, table, [table.vector_name(column) for column in (ACTIVE, STANDBY)])

    async def _open_rollback(self, connection: Connection, table: MemoryTable, previous: SwapRecord | None) -> None:
        if previous is None:
            raise NoSwap(
                "There is no flipped swap to take back.", "Its column was dropped; swap to that model with swap start."
            )
        await state_sql.open_rollback(connection, table, previous.from_model.id, self._directory.recorded_url)

    async def _step(self, connection: Connection) -> bool:
        """Take the next action. Return True if no action was left to take, so that the run ends."""
        table = await self._table(connection)
        swap = await self._latest(connection)
        began = time.monotonic()
        fill = await state_sql.read_fill(connection, table, wanted=self._wanted)
        self._pause = max(_POLL_SECONDS, _REST_FACTOR * (time.monotonic() - began))
        self._wanted = fill.wanted or None
        facts = SwapFacts(
            stage=Stage(swap.stage),
            has_column=table.standby_dimensions is not None,
            fill=fill,
            index_valid=await state_sql.standby_index_valid(connection, table),
            gated=self._measure is not None,
            outcome=self._verdict.outcome if self._verdict else None,
            flip_wanted=self._request.flip,
            is_rollback=swap.is_rollback,
        )
        self._observe(swap, fill)
        action = decide(facts)
        if action is not Action.REST:
            await self._carry_out(connection, table, swap, action)
        elif Stage(swap.stage) in OPEN_STAGES - {Stage.REFUSED}:  # all is done but the flip, which was not requested
            await self._reach(connection, table, swap, Stage.READY)
        return action is Action.REST

    async def _carry_out(self, connection: Connection, table: MemoryTable, swap: SwapRecord, action: Action) -> None:
        if action is Action.ADD_COLUMN:
            await state_sql.add_column(connection, table, swap, give_up_after=self._request.lock_seconds)
        elif action is Action.FILL:
            await self._reach(connection, table, swap, Stage.FILLING)
        elif action is Action.INDEX:
            await self._reach(connection, table, swap, Stage.INDEXING)
            limit = self._request.lock_seconds
            await state_sql.complete_standby_column(connection, table, lock_seconds=limit)
            await state_sql.build_standby_index(connection, table, self._request.index, lock_seconds=limit)
            configured = self._directory.configured
            await find_usual_cosine(lambda work: work(connection), table, swap.to_model, configured, STANDBY)
        elif action is Action.MEASURE and self._measure is not None:
            swap = await self._reach(connection, table, swap, Stage.GATING)
            self._verdict = await self._measure(swap, self._retrying)
        elif action is Action.REFUSE:
            await self._refuse(connection, table, swap)
        elif action is Action.FLIP:
            swap = await self._reach(connection, table, swap, Stage.READY)
            await self._flip(connection, table, swap)

    async def _retrying(self, work: Callable[[], Awaitable[T]], /) -> T:
        """Await a call that an embedder answers, and repeat it while the embedder is away and the run is to go on."""
        return await retry_outage(
            work,
            Awaited.EMBEDDER,
            self._progress,
            on=lambda error: isinstance(error, EmbedderUnavailable) and not self._stop.is_set(),
            give_up_after=self._request.worker.outage_timeout,
            backoff=_AWAY,
        )

    async def _flip(self, connection: Connection, table: MemoryTable, swap: SwapRecord) -> None:
        try:
            await state_sql.flip(connection, table, swap, give_up_after=self._request.lock_seconds)
        except SwapInProgress:
            # If the connection was lost after the commit, then the first attempt has moved it.
            if (await self._latest(connection)).stage != Stage.FLIPPED:
                raise

    async def _refuse(self, connection: Connection, table: MemoryTable, swap: SwapRecord) -> None:
        if self._verdict is not None and self._verdict.outcome is not GateOutcome.PASSED:
            await state_sql.advance(
                connection, table, swap, Stage.REFUSED, message=self._verdict.message, gate=self._verdict.as_record()
            )
            return
        swap = await self._reach(connection, table, swap, Stage.FILLING)
        fill = await state_sql.read_fill(connection, table)
        message = (
            f"The next model's embedder refused {fill.quarantined} of {fill.wanted} rows, which would be found by "
            "words alone after the flip."
        )
        await state_sql.advance(connection, table, swap, Stage.REFUSED, message=message)

    async def _reach(self, connection: Connection, table: MemoryTable, swap: SwapRecord, goal: Stage) -> SwapRecord:
        """Record each stage on the way to `goal`, and then `goal` itself; return the swap's new record."""
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


def _is_target(model: RecordedModel, target: ServedModel) -> bool:
    same_name = (model.name, model.dimensions) == (target.name, target.dimensions)
    return same_name and is_same_file(model.digest, target.digest)


def _require_same(found: SwapRecord, target: ServedModel | None) -> None:
    to_model = found.to_model
    same = (
        target is not None
        and to_model.name == target.name
        and (to_model.digest is None or is_same_file(to_model.digest, target.digest))
    )
    if same or (target is None and found.is_rollback):
        return
    raise SwapInProgress(
        f"A swap to {found.to_model.name} is under way (stage {found.stage}).",
        "Let it go on with memory swap start for that model, or end it with memory swap abort.",
    )


class SwapProgress(ShownBar, LogProgress):
    """Reports a swap's progress in log events and metrics, and on a terminal also in a progress bar with the stage."""

    def __init__(self, metrics: WorkerMetrics) -> None:
        super().__init__(metrics, worker="swap")
        console = Console(stderr=True)
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("preparing", total=None)
        self._stage = ""

    def observe(self, swap: SwapRecord, fill: Fill) -> None:
        """Show the stage, and how many rows have a vector of the next model."""
        self._bar.update(
            self._task, description=swap.stage, total=fill.wanted or None, completed=fill.wanted - fill.pending
        )
        if swap.stage != self._stage and not sys.stderr.isatty():
            self._log.info("stage", stage=swap.stage, rows=fill.wanted, pending=fill.pending)
        self._stage = swap.stage
