"""Lets faults happen side by side, and what an administrator does with care while no other fault happens."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class SharedExclusiveLock:
    """Whoever wants to be alone waits until nobody is under way; meanwhile nobody else begins."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._under_way = 0
        self._alone = False

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Be under way during the block, once nobody is alone."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._alone)
            self._under_way += 1
        try:
            yield
        finally:
            async with self._changed:
                self._under_way -= 1
                self._changed.notify_all()

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Be alone during the block."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._alone)
            self._alone = True
            try:
                await self._changed.wait_for(lambda: self._under_way == 0)
            except BaseException:
                self._alone = False
                self._changed.notify_all()
                raise
        try:
            yield
        finally:
            async with self._changed:
                self._alone = False
                self._changed.notify_all()
