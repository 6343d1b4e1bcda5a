"""The judgements of the observer, each by a case in which the wrong thing happens and one in which it does not."""

from dataclasses import replace

import pytest

from tests.soak.ledger import (
    Ledger,
    Read,
    Recall,
    State,
    faults_of_answer,
    is_leak,
    lost_writes,
    markers_in,
    sensitive_or_removed_since,
)

FIRST, SECOND = "zq00000000000001", "zq00000000000002"


def ledger(*states: State) -> Ledger:
    """Return a ledger with one row that went through these states."""
    made = Ledger()
    for state in states:
        made.write("1", state)
    return made


def state(
    marker: str, began: float, confirmed: float | None, *, sensitive: bool = False, deleted: bool = False
) -> State:
    return State(marker, "ada", sensitive, deleted, began, confirmed)


def recall(*found: str, asker: str = "ada", began: float = 10.0, ended: float = 10.5) -> Recall:
    return Recall("store", asker, began, ended, None, None, found)


ONLY = state(FIRST, 1, 2)
REMOVED = replace(ONLY, removed=True, began=3, confirmed=4)
OF_BOB = replace(ONLY, owner="bob", began=3, confirmed=4)


@pytest.mark.parametrize(
    ("states", "asked", "faults"),
    [
        ([ONLY], recall(FIRST), []),
        ([ONLY], recall(FIRST, asker="bob"), [f"foreign {FIRST}"]),
        ([ONLY], recall(SECOND), [f"unknown {SECOND}"]),
        ([ONLY, state(SECOND, 3, 4)], recall(FIRST), [f"stale {FIRST}"]),
        ([ONLY, state(SECOND, 3, 4)], recall(SECOND), []),
        ([ONLY, state(SECOND, 3, None)], recall(FIRST), []),
        ([ONLY, state(SECOND, 9.9, 10.1)], recall(FIRST), []),
        ([ONLY, state(FIRST, 3, 4, sensitive=True)], recall(FIRST), [f"leak {FIRST}"]),
        ([ONLY, state(FIRST, 3, 4, sensitive=True), state(FIRST, 10.2, 10.3)], recall(FIRST), []),
        ([ONLY, state(FIRST, 3, 4, deleted=True)], recall(FIRST), [f"deleted {FIRST}"]),
        ([ONLY, state(FIRST, 10.1, 10.2, deleted=True)], recall(FIRST), []),
        ([state(FIRST, 3, 4, sensitive=True), state(SECOND, 9.9, 10.1)], recall(FIRST), [f"leak {FIRST}"]),
        ([state(FIRST, 3, 4, sensitive=True), state(SECOND, 9.9, 10.1)], recall(SECOND), []),
        ([state(FIRST, 3, 4, deleted=True), state(SECOND, 9.9, 10.1)], recall(FIRST), [f"deleted {FIRST}"]),
        ([ONLY, OF_BOB, state(SECOND, 10.1, 10.2)], recall(FIRST), [f"foreign {FIRST}"]),
        ([ONLY, replace(OF_BOB, confirmed=10.1)], recall(FIRST), []),
        ([ONLY, REMOVED], recall(FIRST), [f"deleted {FIRST}"]),
        ([ONLY, replace(REMOVED, confirmed=10.1)], recall(FIRST), []),
    ],
    ids=[
        "right", "of somebody else", "of nobody", "of before an edit", "of after it", "before an edit is confirmed",
        "while an edit is under way", "sensitive", "no longer sensitive", "deleted", "deleted meanwhile",
        "sensitive, and plain with another text", "of after both changes", "deleted, and back with another text",
        "of somebody else, and back with another text", "handed over meanwhile",
        "removed", "removed meanwhile",
    ],
)  # fmt: skip
def test_an_answer_is_wrong_if_it_was_right_in_no_single_state_of_its_row_during_the_recall(
    states: list[State], asked: Recall, faults: list[str]
) -> None:
    assert list(faults_of_answer(ledger(*states), asked)) == faults


def test_a_memory_of_somebody_else_is_foreign_also_if_it_has_no_marker() -> None:
    asked = replace(recall(FIRST), owners=("ada", "dan", None))
    assert list(faults_of_answer(ledger(ONLY), asked)) == ["foreign memory of dan", "foreign memory of None"]


EDITED = [ONLY, state(SECOND, 3, 4)]
OLD, NEW = (
    Read("1", f"{marker} a text", "ada", sensitive=False, deleted=False, embedded=True) for marker in (FIRST, SECOND)
)
MARKED = OLD._replace(sensitive=True)


@pytest.mark.parametrize(
    ("states", "reads", "lost"),
    [
        (EDITED, [OLD], [f"is {FIRST} of ada"]),
        (EDITED, [NEW], []),
        ([ONLY, state(SECOND, 3, None)], [OLD], []),
        ([ONLY, state(SECOND, 9.9, 10.1)], [OLD], []),
        ([ONLY, state(FIRST, 3, 4, sensitive=True)], [OLD], [f"is {FIRST} of ada"]),
        ([ONLY, state(FIRST, 3, 4, sensitive=True)], [MARKED], []),
        ([ONLY, state(FIRST, 9.9, 10.1, sensitive=True)], [OLD], []),
        ([state(FIRST, 1, 2, sensitive=True), state(FIRST, 3, 4)], [MARKED], [f"is {FIRST} of ada sensitive"]),
        ([ONLY, state(FIRST, 3, 4, deleted=True)], [OLD], [f"is {FIRST} of ada"]),
        ([ONLY], [OLD._replace(deleted=True)], [f"is {FIRST} of ada deleted"]),
        ([ONLY, OF_BOB], [OLD], [f"is {FIRST} of ada"]),
        ([ONLY, OF_BOB], [OLD._replace(owner="bob")], []),
        ([ONLY], [], ["is absent"]),
        ([state(FIRST, 9.9, 10.1)], [], []),
        ([state(FIRST, 3, None)], [], []),
        ([ONLY, state(SECOND, 3, None)], [], ["is absent"]),
        ([state(FIRST, 9.9, None, sensitive=True)], [OLD], [f"is {FIRST} of ada"]),
        (EDITED, [NEW, OLD], [f"is {FIRST} of ada"]),
        ([ONLY], [OLD, OLD._replace(row="2")], []),
        ([ONLY, REMOVED], [], []),
        ([ONLY, REMOVED], [OLD], [f"is {FIRST} of ada"]),
        ([ONLY, replace(REMOVED, confirmed=10.1)], [OLD], []),
        ([ONLY, replace(REMOVED, confirmed=10.1)], [], []),
    ],
    ids=[
        "a text", "the present text", "a text that is not confirmed", "a text that was confirmed meanwhile",
        "a marking", "marked", "a marking that was confirmed meanwhile", "an unmarking", "a deletion", "a restoration",
        "a change of owner", "of its owner", "a row", "a row that was confirmed meanwhile", "a row not confirmed",
        "a row whose edit is not confirmed", "a marking with which the row began", "a row that is there twice",
        "a row that nobody wrote", "a removed row", "a removal", "a removal that was confirmed meanwhile",
        "a row that was removed meanwhile",
    ],
)  # fmt: skip
def test_a_confirmed_write_that_the_database_no_longer_has_is_lost(
    states: list[State], reads: list[Read], lost: list[str]
) -> None:
    """It would not be seen at the end of a run, when somebody has written the row again."""
    assert list(lost_writes(ledger(*states), reads, 10.0, 10.5)) == [("1", found) for found in lost]


@pytest.mark.parametrize(
    ("began", "leaks"), [(2.5, False), (3.5, False), (4.9, False), (5.1, True), (7.9, True), (9.5, False)]
)
def test_a_text_in_a_request_is_a_leak_from_a_second_after_the_row_became_sensitive_until_it_is_no_longer(
    began: float, leaks: bool
) -> None:
    made = ledger(ONLY, state(FIRST, 3, 4, sensitive=True), state(FIRST, 8, 9))
    assert is_leak(made, FIRST, began, tolerance=1.0) is leaks


def test_the_text_before_an_edit_is_a_leak_as_well_once_the_row_is_sensitive() -> None:
    made = ledger(ONLY, state(SECOND, 3, 4), state(SECOND, 5, 6, sensitive=True))
    assert is_leak(made, FIRST, 8, tolerance=1.0)
    assert not is_leak(made, "zq0000000000000f", 8, tolerance=1.0)


def test_a_text_that_a_row_got_while_it_was_sensitive_is_a_leak_at_once() -> None:
    edited = ledger(ONLY, state(FIRST, 3, 4, sensitive=True), state(SECOND, 4.1, 4.2, sensitive=True))
    assert not is_leak(edited, FIRST, 4.3, tolerance=1.0)
    assert is_leak(edited, SECOND, 4.3, tolerance=1.0)
    inserted = ledger(state(FIRST, 3, None, sensitive=True), state(FIRST, 5, 6))
    assert is_leak(inserted, FIRST, 3.1, tolerance=1.0)
    assert not is_leak(inserted, FIRST, 5.1, tolerance=1.0)


def test_rows_that_have_been_sensitive_or_removed_for_a_minute_are_those_of_which_nothing_may_be_left() -> None:
    made = ledger(ONLY, state(FIRST, 3, 4, sensitive=True))
    assert sensitive_or_removed_since(made, 60, 60) == []
    assert sensitive_or_removed_since(made, 65, 60) == ["1"]
    made.write("1", state(FIRST, 66, None))
    assert sensitive_or_removed_since(made, 130, 60) == []
    assert sensitive_or_removed_since(ledger(ONLY, REMOVED), 63, 60) == []
    assert sensitive_or_removed_since(ledger(ONLY, REMOVED), 65, 60) == ["1"]


def test_the_history_of_a_row_says_when_each_text_was_sent_and_confirmed() -> None:
    written = ledger(ONLY, state(SECOND, 3, None, sensitive=True))
    assert written.history("1") == f"{FIRST} of ada 1.0 to 2.0, {SECOND} of ada sensitive 3.0 to nan"


def test_markers_are_found_in_any_bytes() -> None:
    assert set(markers_in(f"\x00{FIRST},{SECOND} zq12".encode())) == {FIRST, SECOND}
