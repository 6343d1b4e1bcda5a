"""Decides what the person does next, as a pure function of the state.

First a question is written for each drawn memory. Then the questions are judged one after the other, each with its
whole pool, in an order that depends on the seed alone and so tells nothing about ranks or legs.

One question of every five, chosen by the seed, is judged a second time, so that a fifth of the judgements tells how
well the person agrees with themselves. This happens after the next five questions, when the person no longer remembers
the grades, or at the end. The two rounds have different orders, and nothing tells the person which round it is.
"""

import hashlib
import random
from dataclasses import dataclass

from memory_recall.contrib.labelling.labels import Asked, Drawn, Labels, Round
from memory_recall.schema.columns.keys import MemoryId

_BLOCK = 5  # questions, of which one is judged twice


@dataclass(frozen=True, slots=True)
class Write:
    """The task of writing a question for a drawn memory."""

    memory_id: MemoryId
    draw: Drawn


@dataclass(frozen=True, slots=True)
class Pool:
    """The task of finding a question's pool, which needs no person."""

    question: Asked


@dataclass(frozen=True, slots=True)
class Judge:
    """The task of judging how well a memory answers a question."""

    question: Asked
    memory_id: MemoryId
    round: Round


Task = Write | Pool | Judge


@dataclass(frozen=True, slots=True)
class Progress:
    """How many drawn memories, questions, and memories of the present question are done, and how many there are.

    A question that is judged twice counts twice.
    """

    written: int
    to_write: int
    questions: int
    to_judge: int
    memories: int
    pooled: int


def visits(labels: Labels) -> list[tuple[Asked, Round]]:
    """Return the questions in the order in which they are judged, each with its round; some occur in both rounds."""
    order: list[tuple[Asked, Round]] = []
    waiting: Asked | None = None
    blocks = [labels.questions[start : start + _BLOCK] for start in range(0, len(labels.questions), _BLOCK)]
    for number, block in enumerate(blocks):
        order += [(question, 1) for question in block]
        if waiting is not None:
            order.append((waiting, 2))
        drawn = random.Random(f"{labels.seed}:{number}")  # noqa: S311  (a draw that can be repeated, not a secret)
        waiting = drawn.choice(block) if len(block) == _BLOCK else None
    return order if waiting is None else [*order, (waiting, 2)]


def shuffled(labels: Labels, query_id: str, judged: Round) -> list[MemoryId]:
    """Return the pool of a question in the order in which it is shown in this round."""

    def key(memory_id: MemoryId) -> str:
        return hashlib.sha256(f"{labels.seed}:{query_id}:{judged}:{memory_id}".encode()).hexdigest()

    return sorted(labels.pools.get(query_id, []), key=key)


def next_task(labels: Labels) -> Task | None:
    """Return what is to be done next, or None if everything is done."""
    if labels.unwritten:
        return Write(*labels.unwritten[0])
    for question, judged in visits(labels):
        if question.query_id not in labels.pools:
            return Pool(question)
        ungraded = set(labels.ungraded(question.query_id, judged))
        if ungraded:
            first = next(one for one in shuffled(labels, question.query_id, judged) if one in ungraded)
            return Judge(question, first, judged)
    return None


def progress(labels: Labels, task: Task | None) -> Progress:
    """Return how much is done; `task` is the present task."""
    order = visits(labels)
    done = sum(one.query_id in labels.pools and not labels.ungraded(one.query_id, judged) for one, judged in order)
    shown = labels.drawn - labels.withdrawn
    pooled = graded = 0
    if isinstance(task, Judge):
        pooled = len(labels.pools[task.question.query_id])
        graded = pooled - len(labels.ungraded(task.question.query_id, task.round))
    return Progress(len(shown) - len(labels.unwritten), len(shown), done, len(order), graded, pooled)
