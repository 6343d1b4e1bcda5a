"""Tokenises the texts of requests: a few short texts at once, all others on threads, in turns with other requests.

A change of threads costs more than tokenising a query. A large request would keep the event loop busy for seconds.
Long queries have a thread to themselves, so that they do not wait for the turns of hundreds of requests of documents.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from memory_embedder.engine.protocol import EncodedText

_INLINE_TEXTS = 64  # tokenised on the event loop
_INLINE_CHARACTERS = 4096  # of these texts together
_CHARACTERS = 16_384  # tokenised at a time, so that requests take turns on the threads

Encode = Callable[[list[str]], list[EncodedText]]
Check = Callable[[list[EncodedText]], None]


class TokenizingThreads:
    """The threads that tokenise the texts of large requests."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="tokenizer")
        self._query_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="query-tokenizer")

    async def encode(
        self, texts: list[str], encode: Encode, check: Check, *, query: str = "", are_queries: bool = False
    ) -> list[EncodedText]:
        """Tokenise texts with the function `encode`, which reads the text `query` as well at the first call.

        On the threads `check` gets what was tokenised in each turn; an error that it raises ends the tokenising.
        """
        if are_few(texts) and len(query) <= _INLINE_CHARACTERS:
            return encode(texts)
        loop, threads = asyncio.get_running_loop(), self._query_thread if are_queries else self._threads
        encoded: list[EncodedText] = []
        for part in _parts(texts):
            latest = await loop.run_in_executor(threads, encode, part)
            check(latest)
            encoded += latest
        return encoded

    def close(self) -> None:
        """Wait for the threads."""
        for threads in (self._threads, self._query_thread):
            threads.shutdown(wait=True)


def are_few(texts: Sequence[str]) -> bool:
    """Return whether the texts are so few and short that they are tokenised at once."""
    return len(texts) <= _INLINE_TEXTS and sum(map(len, texts)) <= _INLINE_CHARACTERS


def _parts(texts: list[str]) -> Iterator[list[str]]:
    """Divide the texts of a request into groups; tokenising one group takes milliseconds."""
    part: list[str] = []
    characters = 0
    for text in texts:
        part.append(text)
        characters += len(text)
        if characters >= _CHARACTERS:
            yield part
            part, characters = [], 0
    if part:
        yield part
