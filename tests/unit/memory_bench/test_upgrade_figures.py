"""What `make bench-upgrade` counts as a fault and as lost."""

from memory_bench.upgrade.contents import Contents
from tests.support.recalling.loop import Answer, faults

COMPLETE = Answer("fresh", None, None, 5)
DEGRADED = Answer("fresh", None, "IndexMissing", 5)


def test_an_exception_is_a_fault_at_any_time() -> None:
    failed = Answer("fresh", "DatabaseRejected: refused", None, 0)
    assert faults([failed, DEGRADED, failed]) == ["DatabaseRejected: refused"] * 2


def test_a_degraded_answer_is_a_fault_only_after_a_complete_one() -> None:
    assert faults([DEGRADED, DEGRADED, COMPLETE]) == []
    assert faults([DEGRADED, COMPLETE, DEGRADED]) == ["degraded: IndexMissing"]


def test_a_client_that_learns_of_the_index_later_than_another_is_no_fault() -> None:
    assert faults([COMPLETE, Answer("long-lived", None, "IndexMissing", 5), COMPLETE]) == []


def test_a_changed_row_and_a_vector_in_another_column_are_lost_but_new_ones_are_not() -> None:
    before = Contents(frozenset({(1, "a"), (2, "b")}), frozenset({("embedding", 1, "v")}))
    after = Contents(frozenset({(1, "a"), (2, "changed"), (3, "c")}), frozenset({("embedding_standby", 1, "v")}))
    assert (before.rows_lost_in(after), before.vectors_lost_in(after)) == (1, 1)
    assert (before.rows_lost_in(before), before.vectors_lost_in(before)) == (0, 0)
