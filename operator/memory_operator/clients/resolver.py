"""Resolve host names in threads of the operator's own, so that names that nobody answers for delay nobody else.

The system's resolver blocks its thread, for up to half a minute if a name server is silent, and no timeout frees that
thread. On the event loop's common threads, a few such names would keep every other name from being resolved. Therefore
the names of each namespace have few threads, and a thread counts until it has ended, however soon its caller gave up.

Many namespaces can have silent names together. Therefore a name whose last lookup was answered has other threads than
one of which nothing is known, and loses them with the first lookup that is not.
"""

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from memory_operator.reconcile.authorization.addresses import plain_address

THREADS = 64
THREADS_OF_ANSWERED = 32  # of names whose last lookup was answered
THREADS_OF_A_NAMESPACE = 2
RESOLVE_SECONDS = 2.5
_MOST_ADDRESSES = 8
_MOST_ANSWERED = 4096  # names that are remembered, by the namespace that asked for them

Lookup = Callable[[str], list[str]]


class UnresolvedError(Exception):
    """The name has no address, or none was found in time."""


def system_lookup(host: str) -> list[str]:
    """Return the addresses of a host by the system's resolver; this blocks the calling thread."""
    return [str(item[4][0]) for item in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]


class NameResolver:
    """Resolves names. It must be closed, which waits for no thread."""

    def __init__(self, lookup: Lookup = system_lookup, *, seconds: float = RESOLVE_SECONDS) -> None:
        self._lookup = lookup
        self._seconds = seconds
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="resolver")
        self._threads_of_answered = ThreadPoolExecutor(THREADS_OF_ANSWERED, thread_name_prefix="resolver-answered")
        self._answered: dict[tuple[str, str], None] = {}
        self._free: dict[str, asyncio.Semaphore] = {}

    def close(self) -> None:
        """Begin no further lookup."""
        for threads in (self._threads, self._threads_of_answered):
            threads.shutdown(wait=False, cancel_futures=True)

    async def addresses(self, namespace: str, host: str) -> tuple[str, ...]:
        """Return the addresses of a host that an object of this namespace names.

        Raises:
            UnresolvedError: no address was found within the time that waiting and resolving have together.
        """
        name = (namespace, host)
        threads = self._threads_of_answered if name in self._answered else self._threads
        try:
            async with asyncio.timeout(self._seconds):
                found = await self._resolve(namespace, host, threads)
        except (OSError, UnicodeError):  # a TimeoutError, too
            self._answered.pop(name, None)
            raise UnresolvedError from None
        self._answered.pop(name, None)
        self._answered[name] = None  # as the latest
        if len(self._answered) > _MOST_ANSWERED:
            del self._answered[next(iter(self._answered))]
        unique = dict.fromkeys(address for one in found if (address := plain_address(one)))
        if not unique:
            raise UnresolvedError
        return tuple(unique)[:_MOST_ADDRESSES]

    async def _resolve(self, namespace: str, host: str, threads: ThreadPoolExecutor) -> list[str]:
        free = self._free.setdefault(namespace, asyncio.Semaphore(THREADS_OF_A_NAMESPACE))
        await free.acquire()
        loop = asyncio.get_running_loop()

        def ended(_: Future[list[str]]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(free.release)

        try:
            running = threads.submit(self._lookup, host)
        except RuntimeError:  # closed
            free.release()
            raise OSError from None
        running.add_done_callback(ended)
        return await asyncio.wrap_future(running)
