"""What users wrote, and when: the truth by which answers, requests, rows and vectors are judged.

Nothing here reads a database or a clock. Times are seconds of one monotonic clock, which all processes of a machine
share. A write is under way from `began` until it was confirmed; meanwhile the row may be in its old or its new state.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

MARKER = re.compile(rb"zq[0-9a-f]{14}")
"""The word that stands in each text, different in every version of every row."""
_FAULTS = ("foreign", "leak", "deleted", "stale")  # the worst first
_SHOWN_STATES = 4


@dataclass(slots=True)
class State:
    """One state of a row: the marker of its text, its owner, and whether it is sensitive or deleted.

    `began` is when the first statement that brings the row into this state was sent, and `confirmed` when one was
    confirmed, or None as long as none was.
    """

    marker: str
    owner: str
    sensitive: bool
    deleted: bool
    began: float
    confirmed: float | None = None


@dataclass(frozen=True, slots=True)
class Recall:
    """One recall of `asker`: the markers in the answer, or the reason of a refusal in `error`, else None.

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

    def row_of(self, marker: str) -> str | None:
        """Return the row whose text has had this marker."""
        return self._row_of.get(marker)

    def possible(self, row: str, began: float, ended: float) -> Iterator[State]:
        """Yield the states in which a row may have been at a time between `began` and `ended`."""
        states = self.rows.get(row, [])
        for state, following in zip(states, [*states[1:], None], strict=True):
            over = following is not None and following.confirmed is not None and following.confirmed < began
            if state.began <= ended and not over:
                yield state

    def history(self, row: str) -> str:
        """Return the last states of a row, each with when it was sent and confirmed, so that what came late is seen."""
        states = self.rows.get(row, [])[-_SHOWN_STATES:]
        return ", ".join(f"{one.marker} {one.began:.1f} to {one.confirmed or float('nan'):.1f}" for one in states)

    def present(self, row: str) -> State | None:
        """Return the state in which a row is for certain, or None while a write of it is not confirmed."""
        states = self.rows.get(row)
        return states[-1] if states and states[-1].confirmed is not None else None

    def certain(self) -> dict[str, State]:
        """Return the present state of each row that has no unconfirmed write."""
        found = {row: self.present(row) for row in self.rows}
        return {row: state for row, state in found.items() if state is not None}


def faults_of_answer(ledger: Ledger, recall: Recall) -> Iterator[str]:
    """Yield what is wrong with an answer: `foreign`, `leak`, `deleted`, `stale` or `unknown`, each with the marker.

    A row is right in an answer if there is one state, possible at a time of the recall, in which it is the asker's, is
    neither sensitive nor deleted, and has this text. Otherwise the fault is the worst of any possible state.
    """
    for marker in recall.found:
        row = ledger.row_of(marker)
        states = ledger.possible(row, recall.began, recall.ended) if row is not None else ()
        faults = {_fault(state, marker, recall.asker) for state in states}
        if "" not in faults:
            yield f"{min(faults, key=_FAULTS.index, default='unknown')} {marker}"


def _fault(state: State, marker: str, asker: str) -> str:
    """Return what is wrong with a text in an answer to `asker` while its row is in this state, or an empty string."""
    wrong = (state.owner != asker, state.sensitive, state.deleted, state.marker != marker)
    return next((fault for fault, is_so in zip(_FAULTS, wrong, strict=True) if is_so), "")


def lost_writes(
    ledger: Ledger, texts: Iterable[tuple[str, str]], began: float, ended: float
) -> Iterator[tuple[str, str]]:
    """Yield the rows whose text in the database is a former one, with its marker.

    `texts` are keys and texts that were read between `began` and `ended`. The database itself has then lost a confirmed
    write, as at a failover; what answers have of it is not ours.
    """
    for row, text in texts:
        states = list(ledger.possible(row, began, ended))
        marker = next(iter(markers_in(text.encode())), "")
        if states and all(state.marker != marker for state in states):
            yield row, marker


def is_leak(ledger: Ledger, marker: str, began: float, tolerance: float) -> bool:
    """Return whether a request that began then had the text of a row that had been sensitive for `tolerance` seconds.

    Older texts of the row count, too.
    """
    row = ledger.row_of(marker)
    return row is not None and all(state.sensitive for state in ledger.possible(row, began - tolerance, began))


def sensitive_since(ledger: Ledger, now: float, seconds: float) -> list[str]:
    """Return the rows that have been sensitive for longer than `seconds`, with no other write under way."""
    return [
        row
        for row in ledger.rows
        if (states := list(ledger.possible(row, now - seconds, now))) and all(state.sensitive for state in states)
    ]


def markers_in(data: bytes) -> Iterable[str]:
    """Return all markers in some bytes, each once."""
    return {found.decode() for found in MARKER.findall(data)}
