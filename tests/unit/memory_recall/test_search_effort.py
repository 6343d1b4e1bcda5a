"""How deep the index is searched, by the table's size and by how densely the graph is linked."""

import pytest

from memory_recall.hnsw.definition import DEFAULT_EF_CONSTRUCTION, DEFAULT_M
from memory_recall.hnsw.search_effort import SearchedGraph


def ours(rows: float) -> SearchedGraph:
    """An index built with our parameters."""
    return SearchedGraph(rows, DEFAULT_M, DEFAULT_EF_CONSTRUCTION)


@pytest.mark.parametrize("rows", [0.0, 100.0, 6_000.0])
def test_a_filtered_scan_of_a_small_table_is_no_deeper_than_requested(rows: float) -> None:
    """Where the graph is searched well already, more rows would only cost time."""
    assert ours(rows).filtered_depth(50) == SearchedGraph(rows).filtered_depth(50) == 50


def test_a_filtered_scan_of_a_large_table_is_several_times_deeper() -> None:
    """Of a million rows the first fifty within one user of ten are not yet the nearest fifty."""
    assert 2 * 50 <= ours(1e6).filtered_depth(50) <= 4 * 50
    assert 4 * 50 <= SearchedGraph(1e6).filtered_depth(50) <= 6 * 50


@pytest.mark.parametrize("parameters", [(0, 0), (16, 64), (24, 64), (16, 128), (24, 128), (32, 200)])
def test_the_search_grows_with_the_table_up_to_what_pgvector_takes(parameters: tuple[int, int]) -> None:
    """A deeper search of a larger table keeps the share of true neighbours; pgvector refuses more than 1,000."""
    widths = [SearchedGraph(rows, *parameters).ef_search(50) for rows in (0.0, 1e4, 1e5, 1e6, 1e10)]
    assert widths == sorted(widths)
    assert widths[0] >= 2 * 50
    assert widths[-1] == 1000


def test_a_scan_of_one_of_many_partitions_keeps_fewer_candidates() -> None:
    """What they yield is merged, so the nearest of all are seldom in one of them."""
    widths = [ours(1_000).ef_search(50, partitions=partitions) for partitions in (0, 1, 4, 20, 100)]
    assert widths == [100, 100, 100, 58, 34]
    assert ours(1e6).ef_search(50, partitions=100) > widths[-1]


@pytest.mark.parametrize("parameters", [(DEFAULT_M, 64), (16, DEFAULT_EF_CONSTRUCTION), (16, 64)])
def test_a_sparser_graph_than_ours_is_searched_deeper(parameters: tuple[int, int]) -> None:
    """The API's own index, or one of an earlier version of ours, gives as many of the true neighbours."""
    assert SearchedGraph(1e5, *parameters).ef_search(50) > 1.5 * ours(1e5).ef_search(50)
