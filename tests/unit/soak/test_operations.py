"""What users of the soak do with their rows, without a database."""

import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from tests.soak.ledger import Ledger
from tests.soak.stores import PLAIN
from tests.soak.users import OPERATIONS, Writer

HALF_AN_HOUR = 2500  # operations of one writer
_LAST = 500


@pytest.fixture(scope="module")
def done() -> tuple[Ledger, list[tuple[str, int]]]:
    """Return the ledger of a writer that has written for half an hour, and its operations, each with how many rows."""
    dice, ledger = random.Random(1), Ledger()  # noqa: S311 - a fixed seed is wanted
    writer, operations = Writer(PLAIN, 0, Path("none"), ledger, dice), []
    for number in range(HALF_AN_HOUR):
        (operation,) = dice.choices([*OPERATIONS], [*OPERATIONS.values()])
        states = writer._next(operation)
        for row, state in states:
            state.began, state.confirmed = number, number + 0.5
            ledger.write(row, state)
        operations.append((operation, len(states)))
    return ledger, operations


def test_rows_are_inserted_and_imported_for_as_long_as_users_write(done: tuple[Ledger, list[tuple[str, int]]]) -> None:
    written: Counter[str] = Counter()
    for operation, rows in done[1][-_LAST:]:
        written[operation] += rows
    assert written["insert"] >= 80
    assert written["import"] >= 40
    present = sum(not states[-1].removed for states in done[0].rows.values())
    assert 100 < present <= 400


def test_users_do_all_that_may_go_wrong_with_a_row(done: tuple[Ledger, list[tuple[str, int]]]) -> None:
    histories = done[0].rows.values()
    changes = [pair for states in histories for pair in pairwise(states)]
    counts = {
        "inserted sensitive": sum(states[0].sensitive for states in histories),
        "edited while sensitive": sum(
            one.sensitive and other.sensitive and one.marker != other.marker for one, other in changes
        ),
        "handed over": sum(one.owner != other.owner for one, other in changes),
        "removed": sum(other.removed and not one.sensitive for one, other in changes),
        "removed while sensitive": sum(one.sensitive and other.removed for one, other in changes),
    }
    assert min(counts.values()) > 20, counts
    assert not any(one.removed for one, _ in changes)
