"""What is read ahead after a start of the database server, decided without a database."""

from dataclasses import replace

import pytest

from memory_recall.indexing.warming import (
    CacheSettings,
    Portion,
    ReadInto,
    Relation,
    Unit,
    WarmingProgress,
    portions,
    progress_of,
    searches,
    session_name,
)

BLOCK = 8192
ROOMY = CacheSettings(BLOCK, shared_buffers=10_000 * BLOCK, effective_cache_size=40_000 * BLOCK)


def test_relations_are_read_in_their_order_and_each_block_once() -> None:
    found = portions([Relation(7, 2500), Relation(8, 10)], ROOMY, blocks=1000)
    assert found == [
        Portion(7, 0, 999, ReadInto.BUFFERS),
        Portion(7, 1000, 1999, ReadInto.BUFFERS),
        Portion(7, 2000, 2499, ReadInto.BUFFERS),
        Portion(8, 0, 9, ReadInto.BUFFERS),
    ]
    assert sum(one.blocks for one in found) == 2510


def test_no_more_is_read_than_three_quarters_of_what_the_server_is_expected_to_keep() -> None:
    """Of what does not fit, the beginning is read."""
    small = CacheSettings(BLOCK, shared_buffers=100 * BLOCK, effective_cache_size=400 * BLOCK)
    found = portions([Relation(7, 250), Relation(8, 250), Relation(9, 1)], small, blocks=1000)
    assert [(one.oid, one.first, one.last) for one in found] == [(7, 0, 249), (8, 0, 49)]


def test_what_exceeds_three_quarters_of_the_servers_buffers_is_read_into_the_kernels_cache() -> None:
    """A smaller relation after it still fits into them."""
    found = portions([Relation(7, 7501), Relation(8, 3000), Relation(9, 4501)], ROOMY, blocks=10_000)
    assert [one.into for one in found] == [ReadInto.KERNEL, ReadInto.BUFFERS, ReadInto.KERNEL]


@pytest.mark.parametrize(("is_set", "read"), [(True, [7, 8]), (False, [7])])
def test_what_is_beside_the_rows_is_read_only_where_somebody_has_said_how_much_memory_there_is(
    is_set: bool, read: list[int]
) -> None:
    """Postgres assumes 4 GB, of which a container may have a quarter."""
    settings = replace(ROOMY, cache_size_is_set=is_set)
    found = portions([Relation(7, 10), Relation(8, 10, is_toast=True)], settings, blocks=1000)
    assert [one.oid for one in found] == read


@pytest.mark.parametrize(("blocks", "expected"), [(0, 0), (1, 1), (3200, 100), (1_000_000, 1000)])
def test_searches_are_as_many_as_the_vector_index_is_large_and_have_a_bound(blocks: int, expected: int) -> None:
    assert searches([Relation(7, blocks, of_vectors=True), Relation(8, 10**9)]) == expected


@pytest.mark.parametrize(
    "progress",
    [WarmingProgress(0, 2604), WarmingProgress(999_999_999, 999_999_999), WarmingProgress(3, 9, Unit.SEARCHES)],
)
def test_the_name_of_the_session_tells_how_far_it_is_and_postgres_cuts_nothing_off(progress: WarmingProgress) -> None:
    name = session_name(4_294_967_295, progress)
    assert len(name) <= 63
    assert progress_of(4_294_967_295, ["memory-sync", name]) == progress
    assert progress_of(429_496_729, [name]) is None, "another table's"


@pytest.mark.parametrize(
    "name",
    ["memory-warming", "memory-warming 7 1/2 GiB", "memory-warming 7 1/2 MiB more", "memory-warming 7 \u0661/2 MiB"],
)
def test_a_name_of_another_form_tells_nothing(name: str) -> None:
    """Any role can name its session as it likes."""
    assert progress_of(7, [name]) is None


def test_it_is_complete_when_all_is_done_and_where_nothing_was_to_be_done() -> None:
    steps = (WarmingProgress(1, 2), WarmingProgress(2, 2), WarmingProgress(0, 0))
    assert [(one.complete, one.share) for one in steps] == [(False, 0.5), (True, 1.0), (True, 1.0)]
