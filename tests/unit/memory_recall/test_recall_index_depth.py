"""How deep the index is searched, by the table's size."""

import pytest

from memory_recall.store.recall_sql import ef_search, filtered_depth


@pytest.mark.parametrize("rows", [0.0, 100.0, 6_000.0])
def test_a_small_table_is_scanned_no_deeper_than_asked_within_a_filter(rows: float) -> None:
    """Where the graph is searched well already, more rows would only cost time."""
    assert filtered_depth(50, rows) == 50


def test_a_large_table_is_scanned_several_times_deeper_within_a_filter() -> None:
    """Of a million rows the first fifty within one user of ten are not yet the nearest fifty."""
    assert 4 * 50 <= filtered_depth(50, 1e6) <= 6 * 50


def test_the_search_grows_with_the_table_up_to_what_pgvector_takes() -> None:
    """A deeper search of a larger table keeps the share of true neighbours; pgvector refuses more than 1,000."""
    widths = [ef_search(50, rows) for rows in (0.0, 1e4, 1e5, 1e6, 1e9)]
    assert widths == sorted(widths)
    assert widths[0] == 200
    assert widths[-1] == 1000
