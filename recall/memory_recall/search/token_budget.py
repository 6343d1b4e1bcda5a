"""Keeps a page of memories within a number of tokens."""

from collections.abc import Sequence
from dataclasses import replace

from memory_recall.search.result import RecalledMemory, RecallResult

_BYTES_PER_TOKEN = 4  # of UTF-8, so that a text of two or three bytes a character counts as what it costs


def content_tokens(content: str) -> int:
    """Estimate the tokens of a text: a quarter of its bytes in UTF-8, rounded up."""
    return -(-len(content.encode("utf-8", "surrogatepass")) // _BYTES_PER_TOKEN)


def places_that_fit(memories: Sequence[RecalledMemory], max_tokens: int) -> list[int]:
    """Return the places, in their order, of the memories whose contents together have at most so many tokens.

    Memories are taken in the order of their relevance if it is known, else in their own, each if it still fits.
    """
    left, places = max_tokens, []
    for place in sorted(range(len(memories)), key=lambda place: -(memories[place].relevance or 0.0)):
        tokens = content_tokens(memories[place].content)
        if tokens <= left:
            left -= tokens
            places.append(place)
    return sorted(places)


def only(result: RecallResult, places: Sequence[int]) -> RecallResult:
    """Return the result with the memories at these places alone; `left_out` says how many others it had."""
    memories = tuple(result.memories[place] for place in places)
    return replace(result, memories=memories, left_out=len(result.memories) - len(memories))
