"""What users wrote, and when: the truth by which answers, requests, rows and vectors are judged.

Nothing here reads a database or a clock. Times are seconds of one monotonic clock, which all processes of a machine
share. A write is under way from `began` until it was confirmed; meanwhile the row may be in its old or its new state.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

MARKER = re.compile(rb"zq[0-9a-f]{14}")
"""The word that stands in each text, different in every version of every row."""
_FAULTS = ("foreign", "leak", "deleted", "stale")  # the worst first
_SHOWN_STATES = 4


class Read(NamedTuple):
    """A row as a database has it: its key, text and owner, whether it is sensitive or deleted, and has a vector."""

    row: str
    text: str
    owner: str
    sensitive: bool
    deleted: bool
    embedded: bool

    @property
    def marker(self) -> str:
        """The marker of the text, or an empty string."""
        return next(iter(markers_in(self.text.encode())), "")


@dataclass(slots=True)
class State:
    """One state of a row: the marker of its text, its owner, and whether it is sensitive or deleted.

    A row that is `removed` is in the table no longer; otherwise it is as it was before.
    `began` is when the first statement that brings the row into this state was sent, and `confirmed` when one was
    confirmed, or None as long as none was.
    """

    marker: str
    owner: str
    sensitive: bool
    deleted: bool
    began: float
    confirmed: float | None = None
    removed: bool = False

    @property
    def is_sensitive_or_removed(self) -> bool:
        """Whether there may be no vector of the row."""
        return self.sensitive or self.removed

    def is_of(self, read: Read) -> bool:
        """Return whether a row that was read is in this state."""
        shown = (self.marker, self.owner, self.sensitive, self.deleted)
        return not self.removed and shown == (read.marker, read.owner, read.sensitive, read.deleted)


@dataclass(frozen=True, slots=True)
class Recall:
    """One recall of `asker`: the markers in the answer, or the reason of a refusal in `error`, else None.

    `owners` are the owners of all memories in the answer, also of those whose texts have no marker.
    `stood_still` are the seconds between `began` and `ended` in which the loop of its process did not go on. `computed`
    are those for which the process computed, and `queued` those for which it waited for a processor.
    """

    store: str
    asker: str
    began: float
    ended: float
    error: str | None
    degraded: str | None
    found: tuple[str, ...]
    owners: tuple[str | None, ...] = ()
    stood_still: float = 0.0
    computed: float = 0.0
    queued: float = 0.0


@dataclass
class Ledger:
    """All states of all rows of one store, in the order in which they were written."""

    rows: dict[str, list[State]] = field(default_factory=dict)
    _row_of: dict[str, str] = field(default_factory=dict)

    def write(self, row: str, state: State) -> None:
        """Add a state that is about to be written. States of one row follow one another."""
        self.rows.setdefault(row, []).append(state)
        self._row_of[state.marker] = row

    @property
    def confirmed(self) -> int:
        """How many states were confirmed."""
        return sum(state.confirmed is not None for states in self.rows.values() for state in states)

    def row_of(self, marker: str) -> str | None:
        """Return the row whose text has had this marker."""
        return self._row_of.get(marker)

    def possible(self, row: str, began: float, ended: float) -> Iterator[State]:
        """Yield the states in which a row may have been at a time between `began` and `ended`."""
        states = self.rows.get(row, [])
        for state, following in zip(states, [*states, None][1:], strict=True):
            over = following is not None and following.confirmed is not None and following.confirmed < began
            if state.began <= ended and not over:
                yield state

    def may_be_absent(self, row: str, began: float, ended: float) -> bool:
        """Return whether a row may not have been in the table at a time between `began` and `ended`."""
        created = self.rows[row][0].confirmed
        return created is None or created >= began or any(one.removed for one in self.possible(row, began, ended))

    def history(self, row: str) -> str:
        """Return the last states of a row, each with when it was sent and confirmed, so that what came late is seen."""
        states = self.rows.get(row, [])[-_SHOWN_STATES:]
        return ", ".join(f"{_described(one)} {one.began:.1f} to {one.confirmed or float('nan'):.1f}" for one in states)


def _described(one: State | Read) -> str:
    kinds = [kind for kind in ("sensitive", "deleted", "removed") if getattr(one, kind, False)]
    return " ".join([one.marker, "of", one.owner, *kinds])


def faults_of_answer(ledger: Ledger, recall: Recall) -> Iterator[str]:
    """Yield what is wrong with an answer: `foreign`, `leak`, `deleted`, `stale` or `unknown`, each with the marker.

    A memory that is said to be somebody else's is `foreign` in any case. A row is right in an answer if there is one
    state, possible at a time of the recall, in which it is the asker's, is neither sensitive nor deleted nor removed,
    and has this text. Otherwise the fault is the worst of all possible states.
    """
    for owner in recall.owners:
        if owner != recall.asker:
            yield f"foreign memory of {owner}"
    for marker in recall.found:
        row = ledger.row_of(marker)
        states = ledger.possible(row, recall.began, recall.ended) if row is not None else ()
        faults = {_fault(state, marker, recall.asker) for state in states}
        if "" not in faults:
            yield f"{min(faults, key=_FAULTS.index, default='unknown')} {marker}"


def _fault(state: State, marker: str, asker: str) -> str:
    """Return what is wrong with a text in an answer to `asker` while its row is in this state, or an empty string."""
    wrong = (state.owner != asker, state.sensitive, state.deleted or state.removed, state.marker != marker)
    return next((fault for fault, is_so in zip(_FAULTS, wrong, strict=True) if is_so), "")


def lost_writes(ledger: Ledger, reads: Iterable[Read], began: float, ended: float) -> Iterator[tuple[str, str]]:
    """Yield the rows that are in no state in which they may be, each with how it was found.

    `reads` is the whole table, read between `began` and `ended`. The database itself has then lost a confirmed write,
    as at a failover: of a text, an owner, a marking, a deletion, or a row. What answers have of it is not ours.
    """
    present = set()
    for read in reads:
        present.add(read.row)
        states = list(ledger.possible(read.row, began, ended))
        if states and not any(state.is_of(read) for state in states):
            yield read.row, f"is {_described(read)}"
    for row in ledger.rows.keys() - present:
        if not ledger.may_be_absent(row, began, ended):
            yield row, "is absent"


def pending(reads: Iterable[Read]) -> int:
    """Return how many of the rows may be embedded and have no vector."""
    return sum(not read.sensitive and not read.deleted and not read.embedded for read in reads)


def is_leak(ledger: Ledger, marker: str, began: float, tolerance: float) -> bool:
    """Return whether a request that began then had the text of a row that had been sensitive for `tolerance` seconds.

    Older texts of the row count, too. A text that the row got while it was sensitive is a leak at once.
    """
    row = ledger.row_of(marker)
    if row is None:
        return False
    written = next(state.began for state in ledger.rows[row] if state.marker == marker)
    possible = ledger.possible(row, began - tolerance, began)
    return all(state.sensitive or state.began < written for state in possible)


def sensitive_or_removed_since(ledger: Ledger, now: float, seconds: float) -> list[str]:
    """Return the rows that have been sensitive or removed for longer than `seconds`, with no other write under way."""
    return [
        row
        for row in ledger.rows
        if (states := list(ledger.possible(row, now - seconds, now)))
        and all(state.is_sensitive_or_removed for state in states)
    ]


def markers_in(data: bytes) -> Iterable[str]:
    """Return all markers in some bytes, each once."""
    return {found.decode() for found in MARKER.findall(data)}
