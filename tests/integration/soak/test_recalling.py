"""The process that recalls says what it holds, and users pass that on."""

import asyncio
import json
import sys
import time
from asyncio.subprocess import PIPE

import pytest

from tests.soak.recalling import Standstill
from tests.soak.users import Observer, read_recalls


async def test_what_the_process_that_recalls_holds_is_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    """It has no store here, so that it prints nothing else and ends with its input."""
    program = (sys.executable, "-m", "tests.soak.recalling", "{}")
    process = await asyncio.create_subprocess_exec(*program, stdin=PIPE, stdout=PIPE)
    reading = asyncio.create_task(read_recalls(process, Observer()))
    printed = ""
    async with asyncio.timeout(20):
        while not printed:
            await asyncio.sleep(0.02)
            printed = capsys.readouterr().out
    assert process.stdin is not None
    process.stdin.close()
    with pytest.raises(RuntimeError, match="ended by itself"):
        await reading
    assert await process.wait() == 0
    (line,) = printed.splitlines()
    samples = json.loads(line)["samples"]
    assert 10 < samples["memory recalls"] < 1000
    assert 3 <= samples["files recalls"] < 100
    assert samples["tasks recalls"] == 3


async def test_a_standstill_counts_before_its_process_has_noticed_it() -> None:
    standstill = Standstill()
    watching = asyncio.create_task(standstill.watch())
    await asyncio.sleep(0)
    time.sleep(0.3)  # noqa: ASYNC251 - it is what keeps the loop from going on
    noticed_later = standstill.until(time.monotonic())
    watching.cancel()
    assert noticed_later > 0.25
