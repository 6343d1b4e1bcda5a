"""The state of a labelling: a list of events, and what follows from them.

Each answer of the person appends one event, and undoing removes the last one. Everything else is computed from the
events, so a state cannot contradict itself. Events name memories by their ids, so the state never keeps the text of a
memory. It keeps the text of each question, and the grades of the pooled memories.
"""

import hashlib
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from memory_recall.evaluation.judgements import HIGHEST_GRADE
from memory_recall.postgres.identity_sql import MARKED
from memory_recall.schema.columns.keys import MemoryId
from memory_recall.search.query import MAX_QUERY_CHARACTERS

Grade = Annotated[int, Field(ge=0, le=HIGHEST_GRADE)]
Round = Literal[1, 2]
QuestionText = Annotated[str, Field(min_length=1, max_length=MAX_QUERY_CHARACTERS, pattern=r"\S")]


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Drawn(_Event):
    """Memories were drawn, for each of which the person writes a question or declines to.

    `conv` is the user whose memories were drawn, or None if they were drawn from everybody's. `stratum` is the kind of
    question to write.
    """

    kind: Literal["draw"] = "draw"
    memory_ids: list[MemoryId]
    stratum: str
    conv: str | None = None


class Asked(_Event):
    """A question was written or imported. `about` is the drawn memory for which it was written, if there is one.

    `known` holds the ids of memories that answer the question according to the imported file. They are judged like any
    other memory of the pool.
    """

    kind: Literal["ask"] = "ask"
    query_id: str
    text: QuestionText
    stratum: str
    conv: str | None = None
    about: MemoryId | None = None
    known: list[MemoryId] = []

    @classmethod
    def with_hashed_id(cls, text: str, *, stratum: str, conv: str | None, about: MemoryId | None = None) -> "Asked":
        """Make a question of the user `conv`, whose id is a hash of both, so that asking it again gives the same id."""
        digest = hashlib.sha256(f"{conv or ''}\0{text}".encode()).hexdigest()
        return cls(query_id=digest[:12], text=text, stratum=stratum, conv=conv, about=about)


class Declined(_Event):
    """The person wrote no question for a drawn memory."""

    kind: Literal["decline"] = "decline"
    memory_id: MemoryId


class Pooled(_Event):
    """Memories that the legs and fusions found for a question. Later events of the same question add to its pool."""

    kind: Literal["pool"] = "pool"
    query_id: str
    memory_ids: list[MemoryId]


class Graded(_Event):
    """A memory was judged: 3 answers the question, 2 answers a part of it, 1 only concerns it, 0 does not."""

    kind: Literal["grade"] = "grade"
    query_id: str
    memory_id: MemoryId
    round: Round
    grade: Grade


class Dropped(_Event):
    """The person left a question out."""

    kind: Literal["drop"] = "drop"
    query_id: str


class Withdrawn(_Event):
    """A memory turned out to be sensitive or deleted. It is never shown again."""

    kind: Literal["withdraw"] = "withdraw"
    memory_id: MemoryId


Event = Annotated[
    Drawn | Asked | Declined | Pooled | Graded | Dropped | Withdrawn,
    Field(discriminator="kind"),
]


class Origin(BaseModel):
    """The table whose memories are labelled: its full name, its database, and the system identifier of the server.

    `server` is None if the role may not read it. It is that of `DatabaseIdentity`, which a mark can stand in for.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    server: str | None
    database: str
    table: str

    def may_be(self, other: "Origin") -> bool:
        """Return whether nothing tells this table from the other one."""
        servers = {one.server for one in (self, other) if one.server is not None}
        kinds = {server.startswith(MARKED) for server in servers}
        return (self.database, self.table) == (other.database, other.table) and len(servers) == len(kinds)

    def __str__(self) -> str:
        """Return the origin as an error message names it."""
        server = "" if self.server is None else f" on the server {self.server}"
        return f"the table {self.table} of the database {self.database}{server}"


class Labels(BaseModel):
    """The state of a labelling. `seed` decides in which order memories are shown and what is judged twice.

    `origin` is the table of the memories, or None until it has been recorded.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    version: Literal[1] = 1
    seed: int = 0
    origin: Origin | None = None
    events: tuple[Event, ...] = Field(default=(), strict=False)

    def after(self, *events: Event) -> "Labels":
        """Return the state after these further events."""
        return self._with((*self.events, *events))

    def with_origin(self, origin: Origin) -> "Labels":
        """Return the same state with the table whose memories are labelled."""
        return Labels(seed=self.seed, origin=origin, events=self.events)

    def _with(self, events: Sequence[Event]) -> "Labels":
        return Labels(seed=self.seed, origin=self.origin, events=tuple(events))

    def withdraw(self, memory_id: MemoryId) -> "Labels":
        """Return the state after a memory turned out to be sensitive or deleted.

        A question that was written for the memory may repeat its content, so the question is removed with its
        judgements.
        """
        written = {event.query_id for event in self.events if isinstance(event, Asked) and event.about == memory_id}
        return self.without(written).after(Withdrawn(memory_id=memory_id))

    def without(self, query_ids: AbstractSet[str]) -> "Labels":
        """Return the state without these questions and their judgements."""
        return self._with(
            [
                event
                for event in self.events
                if not (isinstance(event, Asked | Pooled | Graded | Dropped) and event.query_id in query_ids)
            ]
        )

    @cached_property
    def withdrawn(self) -> frozenset[MemoryId]:
        """The ids of memories that are not shown any more."""
        return frozenset(event.memory_id for event in self.events if isinstance(event, Withdrawn))

    @cached_property
    def unwritten(self) -> list[tuple[MemoryId, Drawn]]:
        """The drawn memories that still need a question, each with the event of its draw, in the order of drawing."""
        answered = {event.about for event in self.events if isinstance(event, Asked)}
        answered |= {event.memory_id for event in self.events if isinstance(event, Declined)}
        drawn = ((one, event) for event in self.events if isinstance(event, Drawn) for one in event.memory_ids)
        return [(one, event) for one, event in drawn if one not in answered and one not in self.withdrawn]

    @cached_property
    def drawn(self) -> frozenset[MemoryId]:
        """The ids of all memories that were drawn."""
        return frozenset(one for event in self.events if isinstance(event, Drawn) for one in event.memory_ids)

    @cached_property
    def mentioned(self) -> frozenset[MemoryId]:
        """The ids of all memories that were drawn, pooled or written for, without the withdrawn ones."""
        pooled = (one for pool in self.pools.values() for one in pool)
        written = (event.about for event in self.events if isinstance(event, Asked) and event.about is not None)
        return frozenset([*self.drawn, *pooled, *written]) - self.withdrawn

    @cached_property
    def query_ids(self) -> frozenset[str]:
        """The ids of all questions, including those that were left out."""
        return frozenset(event.query_id for event in self.events if isinstance(event, Asked))

    @cached_property
    def questions(self) -> list[Asked]:
        """All questions that were not left out, in the order in which they came."""
        dropped = {event.query_id for event in self.events if isinstance(event, Dropped)}
        asked = [event for event in self.events if isinstance(event, Asked)]
        return [one for one in asked if one.query_id not in dropped]

    @cached_property
    def pools(self) -> dict[str, list[MemoryId]]:
        """For each question that has a pool, the ids of the memories to judge, without the withdrawn memories."""
        found: dict[str, dict[MemoryId, None]] = {}
        for event in self.events:
            if isinstance(event, Pooled):
                found.setdefault(event.query_id, {}).update(dict.fromkeys(event.memory_ids))
        return {name: [one for one in pool if one not in self.withdrawn] for name, pool in found.items()}

    @cached_property
    def grades(self) -> dict[tuple[str, Round], dict[MemoryId, int]]:
        """The grades by question id and round; each value maps the ids of the judged memories to their grades."""
        found: dict[tuple[str, Round], dict[MemoryId, int]] = {}
        for event in self.events:
            if isinstance(event, Graded):
                found.setdefault((event.query_id, event.round), {})[event.memory_id] = event.grade
        return found

    def ungraded(self, query_id: str, judged: Round = 1) -> list[MemoryId]:
        """Return the ids of those memories in a question's pool that have no grade in the round `judged`."""
        graded = self.grades.get((query_id, judged), {})
        return [one for one in self.pools.get(query_id, []) if one not in graded]

    def is_judged(self, query_id: str) -> bool:
        """Whether the question has a pool, and every memory in this pool has a grade."""
        return query_id in self.pools and not self.ungraded(query_id)

    @cached_property
    def last_answer(self) -> int | None:
        """The position of the last event that the person can undo."""
        return next((at for at in reversed(range(len(self.events))) if _is_answer(self.events[at])), None)

    def undone(self) -> "Labels":
        """Return the state without the last answer of the person, or the same state if there is none.

        If the last answer was a written question, the question's pool is removed, too.
        """
        if self.last_answer is None:
            return self
        last = self.events[self.last_answer]
        kept: Sequence[Event] = [event for at, event in enumerate(self.events) if at != self.last_answer]
        if isinstance(last, Asked):
            kept = [one for one in kept if not (isinstance(one, Pooled) and one.query_id == last.query_id)]
        return self._with(kept)


def _is_answer(event: Event) -> bool:
    return isinstance(event, Declined | Graded | Dropped) or (isinstance(event, Asked) and event.about is not None)
