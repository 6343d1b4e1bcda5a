"""Faults happen side by side, and who wants to be alone is."""

import asyncio

from tests.soak.locking import SharedExclusiveLock


async def test_others_are_under_way_together_and_nobody_is_beside_one_that_is_alone() -> None:
    lock, log = SharedExclusiveLock(), []
    ended = asyncio.Event()

    async def beside(name: str) -> None:
        async with lock.shared():
            log.append(f"{name} begins")
            await ended.wait()
            log.append(f"{name} ends")

    async def exclusive() -> None:
        async with lock.exclusive():
            log.append("alone")
            await asyncio.sleep(0)
            log.append("no longer")

    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        for name in ("first", "second"):
            tasks.create_task(beside(name))
        await asyncio.sleep(0.01)
        tasks.create_task(exclusive())
        await asyncio.sleep(0.01)
        tasks.create_task(beside("third"))
        await asyncio.sleep(0.01)
        assert log == ["first begins", "second begins"]
        ended.set()
    assert log[2:] == ["first ends", "second ends", "alone", "no longer", "third begins", "third ends"]


async def test_one_that_gives_up_waiting_lets_the_others_go_on() -> None:
    lock = SharedExclusiveLock()
    async with asyncio.timeout(10), lock.shared():
        waiting = asyncio.create_task(lock.exclusive().__aenter__())
        await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.wait([waiting])
        async with lock.shared():
            assert waiting.cancelled()
