"""One life of a MemoryIndex: it is created, becomes Ready, and is deleted with all that the migrations added."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.support.cluster.conditions import is_ready
from tests.support.cluster.faults.points import Call, Phase, Point, Recorder
from tests.support.cluster.faults.slots import COLUMNS, Slot

READY_SECONDS = 240.0
GONE_SECONDS = 240.0
_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Life:
    """The outcome of one life of a MemoryIndex, from its creation to its deletion.

    `hit` says whether the operator made the call that was to fail. `ready_s` is the time in seconds from the creation
    until Ready, and `gone_s` that from the deletion until the MemoryIndex is gone. `problem` says what did not happen
    in time or was left over; it is empty if nothing went wrong.
    """

    point: Point
    hit: bool
    ready_s: float
    gone_s: float
    problem: str
    calls: tuple[Call, ...]


async def live(slot: Slot, point: Point) -> Life:
    """Create the slot's MemoryIndex, wait until it is Ready, delete it, and return the outcome.

    The call of the operator that `point` names fails while this happens.
    """
    await slot.reset()
    recorder = Recorder(point)
    slot.record(recorder)
    if point.call is None or point.call.phase is Phase.START or not slot.runs_operator:
        await slot.restart_operator()
    recorder.phase = Phase.CREATE
    began = time.monotonic()
    uid = (await slot.create(deletionPolicy="Delete"))["metadata"]["uid"]
    problem = await _within(READY_SECONDS, lambda: _is_ready(slot), "not Ready")
    ready = time.monotonic()
    recorder.phase = Phase.DELETE
    await slot.api.delete(slot.path)
    problem = problem or await _within(GONE_SECONDS, lambda: _is_gone(slot), "not gone")
    gone = time.monotonic()
    if not problem and await slot.kept_database_objects() and not await slot.has_left_behind_event(uid):
        problem = "a Database object is left, and no Event says so"
    if not problem and await slot.sql(COLUMNS) != "0":
        problem = "the column is left"
    if problem:
        await slot.restart_operator()
    seconds = round(ready - began, 1), round(gone - ready, 1)
    return Life(point, recorder.hit or point.call is None, *seconds, problem, tuple(recorder.calls))


async def _within(seconds: float, holds: Callable[[], Awaitable[str]], otherwise: str) -> str:
    """Wait until `holds` returns an empty text, which means success, and return an empty text.

    If this takes longer than `seconds`, return `otherwise` with the last text of `holds`.
    """
    deadline = time.monotonic() + seconds
    while seen := await holds():
        if time.monotonic() > deadline:
            return f"{otherwise} after {seconds:.0f} s: {seen}"
        await asyncio.sleep(_POLL_SECONDS)
    return ""


async def _is_ready(slot: Slot) -> str:
    item = await slot.read()
    if item and is_ready(item):
        return ""
    conditions = ((item or {}).get("status") or {}).get("conditions") or ()
    return "; ".join(f"{one['type']}={one['status']} {one['reason']}" for one in conditions) or "no status"


async def _is_gone(slot: Slot) -> str:
    item = await slot.read()
    return f"finalizers {item['metadata'].get('finalizers')}" if item else ""
