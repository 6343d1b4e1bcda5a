"""A row that another session has locked rests, longer each time, and is not forgotten meanwhile."""

import pytest

from memory_recall.indexing.locked_rows import LockedRows

ROW = (1, "hash")


class Clock:
    """A clock that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_row_rests_longer_each_time_and_a_minute_at_most() -> None:
    """A transaction that stays open for hours costs one request a minute for each of its rows."""
    clock = Clock()
    locked = LockedRows(clock)
    for seconds in (1, 4, 16, 60, 60):
        locked.add([ROW])
        locked.begin_pass()
        clock.now += seconds - 0.5
        assert locked.leaves_out(ROW)
        assert locked.seconds_until_due() == pytest.approx(0.5)
        clock.now += 0.5
        assert not locked.leaves_out(ROW)


def test_a_row_with_another_text_is_due_at_once() -> None:
    """Whoever had it locked may have edited it, and waits for its vector."""
    locked = LockedRows(Clock())
    locked.add([ROW])
    assert not locked.leaves_out((1, "another hash"))
    assert locked.seconds_until_due() is None


def test_a_row_that_a_pass_has_left_out_is_due_until_the_next_pass() -> None:
    """A worker that ends when no row is due must not end between the two."""
    clock = Clock()
    locked = LockedRows(clock)
    locked.add([ROW, (2, "hash")])
    assert locked.leaves_out(ROW)
    clock.now += 5
    assert locked.seconds_until_due() == 0
    locked.begin_pass()
    assert not locked.leaves_out(ROW)
    assert locked.seconds_until_due() is None


def test_a_row_that_was_locked_long_ago_rests_as_at_first() -> None:
    """Nothing is kept of rows that have been stored, or are gone."""
    clock = Clock()
    locked = LockedRows(clock)
    locked.add([ROW])
    clock.now += 3600
    locked.add([(2, "hash")])
    locked.add([ROW])
    locked.leaves_out(ROW)
    assert locked.seconds_until_due() == 1


def test_rows_that_each_pass_finds_locked_are_due_later_each_time() -> None:
    """A transaction that has locked a table of millions would have it read without a pause."""
    clock = Clock()
    locked = LockedRows(clock)
    for seconds in (1, 4, 16, 60, 60):
        locked.begin_pass()
        locked.found_before_embedding()
        clock.now += 0.5
        locked.found_before_embedding()
        assert locked.seconds_until_due() == pytest.approx(seconds - 0.5)
    locked.begin_pass()
    locked.begin_pass()
    locked.found_before_embedding()
    assert locked.seconds_until_due() == 1


def test_further_rows_are_expected_to_be_locked_for_two_minutes_after_the_last_one() -> None:
    """Nothing is looked up of rows of which none was locked lately."""
    clock = Clock()
    locked = LockedRows(clock)
    locked.add([])
    assert not locked.are_expected()
    for found in (lambda: locked.add([ROW]), locked.found_before_embedding):
        found()
        clock.now += 119
        assert locked.are_expected()
        clock.now += 1
        assert not locked.are_expected()
