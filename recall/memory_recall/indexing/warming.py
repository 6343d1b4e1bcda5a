"""Decides what a sync worker has Postgres read ahead once the server has started, and in which portions.

A server that was restarted, or promoted, has little in memory of what recalls search. Each recall then reads thousands
of single pages, one after another, while a whole index is read in seconds from its beginning to its end.

What is read is bounded by what memory can be assumed. A client does not see the server's memory, only two of its
settings. `effective_cache_size` is how much of its files a server is expected to keep in memory, its own buffers and
the kernel's cache together; of that a quarter stays free for what the recalls read besides. What fits into three
quarters of `shared_buffers` is read into these. The rest is read into the kernel's cache alone, because it would push
out of the buffers what was read before.

Without the extension `pg_prewarm`, the neighbours of stored vectors are searched instead. That reads single pages, too,
but those that the most recalls need come first.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

_SHARE = 0.75
_BLOCKS_OF_A_SEARCH = 32  # that no search before it has read; of 100,000 rows 500 searches left little to read
_MOST_SEARCHES = 1000
_MIB = 2**20


class ReadInto(StrEnum):
    """Where the pages are read into, as the function `pg_prewarm` names it."""

    BUFFERS = "buffer"
    KERNEL = "read"


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """Settings of the server in bytes, and whether `effective_cache_size` is set, not Postgres's default."""

    block_size: int
    shared_buffers: int
    effective_cache_size: int
    cache_size_is_set: bool = True


@dataclass(frozen=True, slots=True)
class Relation:
    """An index or a table by its OID, the number of its blocks, and what it is.

    `of_vectors` says that it is an index of vectors, `is_toast` that it is a TOAST table, where Postgres stores long
    values, or the index of one.
    """

    oid: int
    blocks: int
    of_vectors: bool = False
    is_toast: bool = False


@dataclass(frozen=True, slots=True)
class Portion:
    """Blocks of a relation, from `first` to `last`, both included, that one statement reads."""

    oid: int
    first: int
    last: int
    into: ReadInto

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return self.last - self.first + 1


class Unit(StrEnum):
    """What is counted."""

    MIB = "MiB"
    SEARCHES = "searches"


@dataclass(frozen=True, slots=True)
class WarmingProgress:
    """How much a worker has read ahead since the server started, and how much it will: MiB, or searches."""

    done: int
    chosen: int
    unit: Unit = Unit.MIB

    @property
    def share(self) -> float:
        """The part that is done; 1 if nothing was chosen."""
        return self.done / self.chosen if self.chosen else 1.0

    @property
    def complete(self) -> bool:
        """Whether all is done."""
        return self.done >= self.chosen


_SESSION_NAME = re.compile(rf"memory-warming (\d{{1,10}}) (\d{{1,9}})/(\d{{1,9}}) ({'|'.join(Unit)})", re.ASCII)


def portions(relations: Sequence[Relation], settings: CacheSettings, *, blocks: int) -> list[Portion]:
    """Return what is read, in this order, in portions of at most `blocks` blocks.

    The relations are read in the order given, until what memory can be assumed is full; of the one that does not fit,
    the beginning is read. TOAST tables are left out where nobody has said how much memory there is: if there is less
    than Postgres assumes, they would push out what was read before.
    """
    left = int(settings.effective_cache_size * _SHARE) // settings.block_size
    buffers = int(settings.shared_buffers * _SHARE) // settings.block_size
    chosen: list[Portion] = []
    for one in relations:
        if one.is_toast and not settings.cache_size_is_set:
            continue
        wanted = min(one.blocks, left)
        left -= wanted
        fits = wanted <= buffers
        buffers -= wanted if fits else 0
        chosen += _cut(one.oid, wanted, blocks, ReadInto.BUFFERS if fits else ReadInto.KERNEL)
    return chosen


def _cut(oid: int, wanted: int, blocks: int, into: ReadInto) -> Iterator[Portion]:
    for first in range(0, wanted, blocks):
        yield Portion(oid, first, min(first + blocks, wanted) - 1, into)


def mib_of(blocks: int, settings: CacheSettings) -> int:
    """Return the size of blocks in MiB, rounded up."""
    return -(-blocks * settings.block_size // _MIB)


def searches(relations: Sequence[Relation]) -> int:
    """Return how many searches read most of what a recall needs of the vector index among these relations."""
    blocks = sum(one.blocks for one in relations if one.of_vectors)
    return min(-(-blocks // _BLOCKS_OF_A_SEARCH), _MOST_SEARCHES)


def session_name(table: int, progress: WarmingProgress) -> str:
    """Return the name of the session that warms the table with this OID; the name says how far it is."""
    return f"memory-warming {table} {progress.done}/{progress.chosen} {progress.unit}"


def progress_of(table: int, names: Iterable[str]) -> WarmingProgress | None:
    """Return the warming progress of the table with this OID from session names; None if no session warms it."""
    for name in names:
        found = _SESSION_NAME.fullmatch(name)
        if found and int(found[1]) == table:
            return WarmingProgress(int(found[2]), int(found[3]), Unit(found[4]))
    return None
