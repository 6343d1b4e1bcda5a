"""The program that runs inside the cluster's network, with the operator processes of all slots.

A slot is a namespace with a Postgres cluster and an operator of its own. Each slot either tries fault points or
recovers from an outage. A fault point is one call of the operator that fails in one way. Standard input holds one JSON
object with the slots, the programs, the folder for logs, the fraction of the fault points to try, and the settings of
outages. If the fraction is 0, outages are caused instead. Each result is printed as one line of JSON.
"""

import asyncio
import json
import os
import ssl
import sys
import tempfile
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from tests.support.cluster.api import Api
from tests.support.cluster.faults.lives import Life, live
from tests.support.cluster.faults.points import Point, enumerate_points, sampled
from tests.support.cluster.faults.recovery import SCENARIOS
from tests.support.cluster.faults.slots import Programs, Slot, SlotPlace

_READ_BYTES = 1 << 24
_RECORDED = 4  # lives without a fault, to see which calls are made in all of them


def say(**entry: Any) -> None:
    """Print one line of JSON."""
    print(json.dumps(entry, default=str), flush=True)


async def run_lives(slots: list[Slot], share: float) -> None:
    """Create and delete a MemoryIndex a few times without a fault, then once for each fault point.

    A fault point is one call of the operator that fails in one way. Fault points are made of the calls that the
    operator made every time without a fault. Only the fraction `share` of the fault points is tried.
    """
    recorded = await asyncio.gather(*(live(slot, Point()) for slot in slots[:_RECORDED]))
    broken = [life for life in recorded if life.problem]
    if broken:
        say(error=f"a life without a fault did not converge: {broken[0].problem}")
        return
    every = enumerate_points(life.calls for life in recorded)
    chosen = sampled(every, share)
    say(points=len(chosen), all=len(every), calls=[str(call) for call in sorted({p.call for p in every if p.call})],
        ready_s=max(life.ready_s for life in recorded), gone_s=max(life.gone_s for life in recorded))  # fmt: skip
    queue: asyncio.Queue[Point] = asyncio.Queue()
    for point in chosen:
        queue.put_nowait(point)
    await asyncio.gather(*(_try_points(slot, queue) for slot in slots))


async def _try_points(slot: Slot, queue: "asyncio.Queue[Point]") -> None:
    """Take fault points from the queue, and try each in this slot, until the queue is empty.

    A fault point is one call of the operator that fails in one way. If the operator did not make this call, the fault
    point is tried once more.
    """
    while not queue.empty():
        point = queue.get_nowait()
        life = await _attempt(slot, point)
        if not life.hit and not life.problem:
            life = await _attempt(slot, point)
        entry = {name: value for name, value in asdict(life).items() if name not in {"calls", "point"}}
        say(point=str(point), **entry)


async def _attempt(slot: Slot, point: Point) -> Life:
    try:
        return await live(slot, point)
    except Exception as error:  # noqa: BLE001  (one life that cannot be lived must not end the others)
        await slot.restart_operator()
        return Life(point, hit=True, ready_s=0.0, gone_s=0.0, problem=f"{type(error).__name__}: {error}", calls=())


async def run_recoveries(slots: list[Slot], settings: dict[str, float]) -> None:
    """Cause all kinds of outages side by side, each in a slot of its own, and print how long each recovery took."""

    async def run(name: str, slot: Slot) -> None:
        try:
            say(scenario=name, seconds=await SCENARIOS[name](slot, settings))
        except Exception as error:  # noqa: BLE001  (the other scenarios go on)
            say(scenario=name, seconds=None, problem=f"{type(error).__name__}: {error}")

    await asyncio.gather(*(run(name, slot) for name, slot in zip(SCENARIOS, slots, strict=True)))


@asynccontextmanager
async def _session() -> AsyncIterator[aiohttp.ClientSession]:
    """Open an HTTP session with the API server that the file in the variable KUBECONFIG names."""
    config = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text(encoding="utf-8"))  # noqa: ASYNC240  (before anything runs)
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(cadata=b64decode(cluster["certificate-authority-data"]).decode())
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    with tempfile.NamedTemporaryFile() as pair:
        pair.write(b64decode(user["client-certificate-data"]) + b64decode(user["client-key-data"]))
        pair.flush()
        context.load_cert_chain(pair.name)
    connector = aiohttp.TCPConnector(ssl=context, limit=0)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
    async with aiohttp.ClientSession(
        cluster["server"], connector=connector, timeout=timeout, read_bufsize=_READ_BYTES, auto_decompress=True
    ) as session:
        yield session


async def main(order: dict[str, Any]) -> None:
    """Try fault points, or cause outages if the share is 0, in the slots that `order` lists."""
    logs = Path(order["logs"])
    async with _session() as session, AsyncExitStack() as stack:
        slots = []
        for place in order["slots"]:
            slot = Slot(SlotPlace(**place), Programs(**order["programs"]), Api(session), session, logs)
            await slot.proxy.start()
            stack.push_async_callback(slot.proxy.stop)
            stack.push_async_callback(slot.stop_operator)
            slots.append(slot)
        if order["share"]:
            await run_lives(slots, order["share"])
        else:
            await run_recoveries(slots, order["settings"])


if __name__ == "__main__":
    asyncio.run(main(json.load(sys.stdin)))
