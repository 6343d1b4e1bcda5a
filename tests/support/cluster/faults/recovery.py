"""Measures how soon a MemoryIndex is Ready again after an outage of its database, its Secret or the API server."""

import asyncio
import time
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable, Mapping

from tests.support.cluster.conditions import condition, is_ready
from tests.support.cluster.faults.points import Recorder
from tests.support.cluster.faults.slots import KEY, SECRET, Slot

READY_SECONDS = 240.0
_POLL_SECONDS = 0.2
_TABLE = "memory_bench_blackhole"


async def blackholed_database(slot: Slot, settings: Mapping[str, float]) -> float:
    """Drop all packets to the database for a while; return the seconds from the end until the object is Ready."""
    await _settled(slot)
    pod = await slot.api.get(f"/api/v1/namespaces/{slot.place.database_namespace}/pods/{slot.place.cluster}-1")
    await _nft(
        f"add table ip {_TABLE}; "
        + "".join(
            f"add chain ip {_TABLE} {hook} {{ type filter hook {hook} priority 10; }}; "
            f"add rule ip {_TABLE} {hook} ip daddr {pod['status']['podIP']} tcp dport 5432 drop; "
            for hook in ("output", "forward")
        )
    )
    try:
        await _until(slot, lambda item: condition(item, "DatabaseReachable").get("status") == "False")
        await asyncio.sleep(settings["blackhole_s"])
    finally:
        await _nft(f"delete table ip {_TABLE}")
    return await _seconds_until_ready(slot)


async def api_outage(slot: Slot, settings: Mapping[str, float]) -> float:
    """Make the API server unreachable for the operator for a while, and edit the MemoryIndex meanwhile.

    Return the seconds from the end of the outage until the MemoryIndex is Ready.
    """
    await _settled(slot)
    await slot.proxy.stop()
    await asyncio.sleep(settings["outage_s"])
    await slot.api.patch(slot.path, {"spec": {"database": {"extension": {"minimumVersion": "0.7.1"}}}})
    await slot.proxy.start()
    return await _seconds_until_ready(slot)


async def corrected_secret(slot: Slot, settings: Mapping[str, float]) -> float:
    """Write a wrong password to the Secret, wait until the MemoryIndex is stalled, and correct the password.

    Return the seconds from the correction until the MemoryIndex is Ready.
    """
    await _settled(slot)
    path = f"/api/v1/namespaces/{slot.place.namespace}/secrets/{SECRET}"
    right = (await slot.api.get(path))["data"][KEY]
    user, _, rest = b64decode(right).decode().partition("@")
    wrong = b64encode(f"{user}x@{rest}".encode()).decode()
    await slot.api.patch(path, {"data": {KEY: wrong}})
    await _until(slot, lambda item: condition(item, "Stalled").get("status") == "True")
    await asyncio.sleep(settings["stalled_s"])
    await slot.api.patch(path, {"data": {KEY: right}})
    return await _seconds_until_ready(slot)


SCENARIOS: dict[str, Callable[[Slot, Mapping[str, float]], Awaitable[float]]] = {
    "blackholed database": blackholed_database,
    "API outage": api_outage,
    "corrected Secret": corrected_secret,
}


async def _settled(slot: Slot) -> None:
    await slot.reset()
    slot.record(Recorder())
    await slot.restart_operator()
    await slot.create()
    await _until(slot, is_ready)


async def _seconds_until_ready(slot: Slot) -> float:
    began = time.monotonic()
    await _until(slot, is_ready)
    return round(time.monotonic() - began, 1)


async def _until(slot: Slot, holds: Callable[[dict[str, object]], bool]) -> None:
    async with asyncio.timeout(READY_SECONDS):
        while True:
            item = await slot.read()
            if item and holds(item):
                return
            await asyncio.sleep(_POLL_SECONDS)


async def _nft(rules: str) -> None:
    """Run `nft` with these rules, to change the packet filter of the cluster's network."""
    process = await asyncio.create_subprocess_exec("nft", rules)
    if await process.wait():
        raise RuntimeError(f"nft refused: {rules}")
