"""Computes where a concept, its memories and the concepts that they share stand in a picture.

The concept is in the middle. The memories stand around it in two curved columns, and the shared concepts in two further
ones outside. The same neighbourhood gives the same picture, in a number of steps that is known beforehand.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from memory_recall.graph.neighbourhood import Neighbourhood, ShownMemory

MOST_MEMORIES = 24
MOST_CONCEPTS = 24

_WIDTH = 1040
_SMALLEST_HEIGHT = 400
_ROW = 46  # pixels from one node to that below it, where a column is full
_WIDEST_ROW = 84
_MARGIN = 24
_BOX = 196  # pixels; the width of the box of a memory
_LABEL = 124  # and of the text beside the dot of a concept
_MIDDLE_BOX = 170
_MEMORIES_AT = (140, 60)  # pixels from the middle at the top and the bottom, and how many more at half the height
_CONCEPTS_AT = (340, 42)
_LONGEST_TEXT = 60  # characters; more never fit
_SWEEPS = 8
Kind: TypeAlias = Literal["middle", "memory", "concept"]


@dataclass(frozen=True, slots=True)
class Node:
    """What is drawn at a point: `x` and `y` are pixels from the picture's upper left corner.

    `name` is the full name of a concept or the id of a memory, and `text` at most 60 characters of what it says. The
    text may be `width` pixels wide. `side` is -1 left of the middle, 1 right of it and 0 in the middle. `memories` is
    how many memories have a concept, and 0 for a memory.
    """

    kind: Kind
    name: str
    text: str
    x: float
    y: float
    width: int
    side: int
    memories: int


@dataclass(frozen=True, slots=True)
class Line:
    """A line between two nodes, which are given by their places in the picture's list; and where it starts and ends."""

    start: int
    end: int
    x1: float
    y1: float
    x2: float
    y2: float


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of this many pixels, with at most 49 nodes, of which the first is the middle; `told` describes it."""

    width: int
    height: int
    nodes: list[Node]
    lines: list[Line]
    told: str


def drawn(found: Neighbourhood) -> Picture:
    """Return the picture of a neighbourhood: of its newest 24 memories, and of the first 24 concepts that these have.

    A shared concept that none of the drawn memories has is left out.
    """
    memories = found.newest[:MOST_MEMORIES]
    had = {one for memory in memories for one in memory.concepts}
    counts = {one.concept: one.memories for one in found.shared if one.concept in had}
    concepts = list(counts)[:MOST_CONCEPTS]
    memories, concepts = _in_order(memories, concepts)
    height = max(_SMALLEST_HEIGHT, _ROW * math.ceil(max(len(memories), len(concepts)) / 2) + 2 * _MARGIN)
    middle = Node(
        "middle", found.concept, _short(found.concept), _WIDTH / 2, height / 2, _MIDDLE_BOX, 0, found.memories
    )
    nodes = [
        middle,
        *(
            Node("memory", str(memory.id), _short(memory.content), x, y, _BOX, side, 0)
            for memory, (x, y, side) in zip(memories, _places(len(memories), _MEMORIES_AT, height), strict=True)
        ),
        *(
            Node("concept", concept, _short(concept), x, y, _LABEL, side, counts[concept])
            for concept, (x, y, side) in zip(concepts, _places(len(concepts), _CONCEPTS_AT, height), strict=True)
        ),
    ]
    place = {concept: 1 + len(memories) + number for number, concept in enumerate(concepts)}
    lines = [
        line
        for number, memory in enumerate(memories, 1)
        for line in [
            _line(nodes, number, 0),
            *(_line(nodes, number, place[one]) for one in memory.concepts if one in place),
        ]
    ]
    return Picture(_WIDTH, height, nodes, lines, _told(found, len(memories), len(concepts)))


def _told(found: Neighbourhood, memories: int, concepts: int) -> str:
    more = " or more" if found.more else ""
    has = "memory has" if (found.memories, found.more) == (1, False) else "memories have"
    told = f"{found.memories}{more} {has} {found.concept}; concepts that several of them share: {found.sharing}."
    left_out = [
        *([f"the newest {memories} memories"] if memories < found.memories or found.more else []),
        *([f"{concepts} of the shared concepts"] if concepts < found.sharing else []),
    ]
    return f"{told} Drawn are only {' and '.join(left_out)}." if left_out else told


def _in_order(memories: list[ShownMemory], concepts: list[str]) -> tuple[list[ShownMemory], list[str]]:
    """Return both in an order around the middle that places what is linked near each other."""
    number = {concept: place for place, concept in enumerate(concepts)}
    has = [[number[one] for one in memory.concepts if one in number] for memory in memories]
    had_by = [[place for place, found in enumerate(has) if concept in found] for concept in range(len(concepts))]
    inner = [_angle(place, len(memories)) for place in range(len(memories))]
    outer = [_angle(place, len(concepts)) for place in range(len(concepts))]
    for _ in range(_SWEEPS):
        outer = _spread(outer, had_by, inner)
        inner = _spread(inner, has, outer)
    return (
        [memory for _, memory in sorted(zip(inner, memories, strict=True), key=lambda one: one[0])],
        [concept for _, concept in sorted(zip(outer, concepts, strict=True), key=lambda one: one[0])],
    )


def _spread(angles: Sequence[float], links: Sequence[Sequence[int]], others: Sequence[float]) -> list[float]:
    """Return new angles at equal distances, in the order of the mean directions of what each is linked with."""
    wished = [_mean([others[one] for one in linked], own) for linked, own in zip(links, angles, strict=True)]
    order = sorted(range(len(angles)), key=lambda one: (wished[one], angles[one]))
    return [_angle(order.index(one), len(angles)) for one in range(len(angles))]


def _mean(angles: Sequence[float], otherwise: float) -> float:
    """Return the mean direction, or `otherwise` if the angles cancel out or there are none."""
    across, up = sum(math.sin(one) for one in angles), sum(math.cos(one) for one in angles)
    if math.hypot(across, up) < 1e-6:
        return otherwise
    return round(math.atan2(across, up) % math.tau, 6)


def _angle(place: int, count: int) -> float:
    return math.tau * (place + 0.5) / count


def _places(count: int, distance: tuple[int, int], height: int) -> list[tuple[float, float, int]]:
    """Return x, y and side of so many nodes clockwise from the top: half of them right of the middle, the rest left."""
    right = math.ceil(count / 2)
    left = [(_WIDTH - x, y, -1) for x, y in _column(count - right, distance, height)]
    return [*((x, y, 1) for x, y in _column(right, distance, height)), *reversed(left)]


def _column(count: int, distance: tuple[int, int], height: int) -> list[tuple[float, float]]:
    """Return x and y of so many nodes below each other, right of the middle."""
    if not count:
        return []
    row = min(_WIDEST_ROW, (height - 2 * _MARGIN) / count)
    nearest, bulge = distance
    heights = [(place - (count - 1) / 2) * row for place in range(count)]
    return [
        (round(_WIDTH / 2 + nearest + bulge * math.sqrt(1 - (2 * y / height) ** 2), 1), round(height / 2 + y, 1))
        for y in heights
    ]


def _line(nodes: Sequence[Node], memory: int, other: int) -> Line:
    """Return a line from the edge of a memory's box that is nearer to the other node."""
    box, end = nodes[memory], nodes[other]
    edge = box.x + math.copysign(_BOX / 2, end.x - box.x)
    return Line(memory, other, edge, box.y, end.x, end.y)


def _short(text: str) -> str:
    return " ".join(text[: 4 * _LONGEST_TEXT].split())[:_LONGEST_TEXT]
