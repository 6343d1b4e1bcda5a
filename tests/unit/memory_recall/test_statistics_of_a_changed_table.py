"""When a recall measures the table anew, whose rows it learns every few seconds."""

from types import SimpleNamespace
from typing import Any

import pytest

from memory_recall import HybridRecall
from memory_recall.errors import DatabaseUnreachable
from memory_recall.search.cached_value import CachedValue
from memory_recall.search.sql.collection_statistics import assumed_collection


class Measuring(HybridRecall):
    """Has a table whose rows a test sets; it remembers how many there were at each measurement."""

    def __init__(self, rows: float, failure: DatabaseUnreachable | None = None) -> None:
        pool: Any = None
        super().__init__(pool)
        self.measured: list[float] = []
        self.failure = failure
        self.rows: Any = SimpleNamespace(rows=rows, table=None)
        self._readiness = CachedValue(self._current, 0.0)

    async def _current(self) -> Any:
        return self.rows

    async def _read(self, *_: Any, **_options: Any) -> Any:
        self.measured.append(self.rows.rows)
        if self.failure is not None:
            raise self.failure
        return assumed_collection(self.rows.rows)

    async def known(self, rows: float) -> int:
        """The number of rows by the statistics that a recall uses while the table has so many."""
        self.rows.rows = rows
        return (await self._known_of(self.rows)).rows


@pytest.mark.parametrize(("before", "after"), [(0.0, 500_000.0), (1_000.0, 5_000.0), (500_000.0, 10.0)])
async def test_a_table_that_has_several_times_more_or_fewer_rows_is_measured_at_once(
    before: float, after: float
) -> None:
    recall = Measuring(before)
    assert [await recall.known(rows) for rows in (before, after, after)] == [before, after, after]
    assert recall.measured == [before, after]


async def test_a_table_that_grows_slowly_keeps_its_statistics() -> None:
    recall = Measuring(100_000.0)
    assert [await recall.known(rows) for rows in (100_000.0, 300_000.0, 50_000.0)] == [100_000] * 3


async def test_a_table_that_cannot_be_measured_is_not_measured_again_by_each_recall() -> None:
    recall = Measuring(0.0, DatabaseUnreachable("late"))
    assert [await recall.known(rows) for rows in (0.0, 500_000.0, 500_000.0)] == [0, 500_000, 500_000]
    assert recall.measured == [0.0, 500_000.0]
