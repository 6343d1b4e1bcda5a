"""Runs a process that recalls without pause while something else happens, and finds the faults in its answers."""

import asyncio
import json
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

SCRIPT = Path(__file__).with_name("script.py")
_TIMEOUT_SECONDS = 120


class CommandFailed(Exception):  # noqa: N818  (the name is the reason that users read)
    """A command ended with an unexpected exit status, or an awaited state was not reached in time."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one recall.

    `client` is "long-lived" or "fresh". `error` is the exception, or None. `reason` says why the answer was degraded,
    or is None for a complete answer. `found` is the number of memories.
    """

    client: str
    error: str | None
    reason: str | None
    found: int


def faults(answers: Sequence[Answer]) -> list[str]:
    """Return all exceptions, and the degraded answers that follow a complete answer of the same kind of client.

    The kinds "long-lived" and "fresh" are judged separately, because a long-lived client may notice later than a fresh
    one that the dense leg is ready.
    """
    complete: set[str] = set()
    found = []
    for answer in answers:
        if answer.error is not None:
            found.append(answer.error)
        elif answer.reason is None:
            complete.add(answer.client)
        elif answer.client in complete:
            found.append(f"degraded: {answer.reason}")
    return found


class RecallLoop:
    """A context manager that runs a recalling process; `which` selects its recall library, "former" or "present"."""

    def __init__(self, which: str, spawn: Callable[[], Awaitable[Process]], questions: Sequence[str]) -> None:
        self.which = which
        self._spawn = spawn
        self._questions = questions
        self.answers: list[Answer] = []
        self._grown = asyncio.Condition()

    async def __aenter__(self) -> Self:
        self._process = await self._spawn()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(list(self._questions)).encode() + b"\n")
        self._reading = asyncio.create_task(self._read())
        self._errors = asyncio.create_task(self._drain())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                await self._reading
                await self._process.wait()
        finally:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.answers.append(Answer(**json.loads(line)))
            async with self._grown:
                self._grown.notify_all()
        async with self._grown:
            self._grown.notify_all()

    async def _drain(self) -> bytes:
        assert self._process.stderr is not None
        return await self._process.stderr.read()

    def faults(self) -> list[str]:
        """Return the faults in the answers so far, each with the name of the library that gave the answer."""
        return [f"{self.which} library: {fault}" for fault in faults(self.answers)]

    async def wait_for_answers(self, count: int) -> Sequence[Answer]:
        """Wait until each client has given `count` more answers, and return all answers since the call.

        Raises:
            CommandFailed: the process ended, or two minutes passed.
        """
        start = len(self.answers)

        def enough() -> bool:
            since = self.answers[start:]
            return all(sum(one.client == client for one in since) >= count for client in ("long-lived", "fresh"))

        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS), self._grown:
                await self._grown.wait_for(lambda: enough() or self._reading.done())
        except TimeoutError:
            since = len(self.answers) - start
            raise CommandFailed(f"Recalls with the {self.which} library gave {since} answers in two minutes.") from None
        if not enough():
            unread = self._reading.exception()
            if unread is not None:
                raise CommandFailed(f"An answer of the {self.which} library cannot be read: {unread!r}.") from unread
            said = (await self._errors).decode(errors="replace")
            raise CommandFailed(f"The {self.which} library's recalls ended by themselves: {said[-600:].strip()}")
        return self.answers[start:]

    async def wait_until_complete(self) -> None:
        """Wait until a fresh client gives an answer that is not degraded.

        Raises:
            CommandFailed: no such answer came within two minutes.
        """
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                while not any(map(_fresh_and_complete, await self.wait_for_answers(5))):
                    pass
        except TimeoutError:
            last = self.answers[-1:]
            raise CommandFailed(f"Recalls with the {self.which} library stay degraded: {last}.") from None


def _fresh_and_complete(answer: Answer) -> bool:
    return answer.client == "fresh" and answer.error is None and answer.reason is None
