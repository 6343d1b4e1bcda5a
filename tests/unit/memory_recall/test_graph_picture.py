"""Where a concept, its memories and the concepts that they share stand in the picture."""

import json
from dataclasses import asdict
from itertools import combinations

import pytest

from memory_recall.graph.neighbourhood import Neighbourhood, SharedConcept, ShownMemory
from memory_recall.graph.page.layout import Node, drawn

HEIGHT = {"middle": 44, "memory": 34, "concept": 18}  # pixels, as the page draws them


def neighbourhood(memories: int, concepts: int, *, more: bool = False, sharing: int | None = None) -> Neighbourhood:
    """Memory n has every concept whose number divides by n or n + 1."""
    names = [f"concept {number}" for number in range(concepts)]
    newest = [
        ShownMemory(id=n, content=f"Memory number {n}. " * 40, concepts=[
            name for number, name in enumerate(names) if not number % n or not number % (n + 1)
        ])
        for n in range(memories, 0, -1)
    ]  # fmt: skip
    shared = [SharedConcept(name, sum(name in one.concepts for one in newest)) for name in names]
    counted = 100 if more else memories
    shared_in_all = concepts if sharing is None else sharing
    return Neighbourhood("marit", counted, more=more, newest=newest, sharing=shared_in_all, shared=shared)


def box(node: Node) -> tuple[float, float, float, float]:
    """What a node takes of the picture: left, top, right and bottom. A concept's text stands outside of its dot."""
    height = HEIGHT[node.kind] / 2
    if node.kind == "concept":
        near, far = node.x - node.side * 8, node.x + node.side * (14 + node.width)
        return min(near, far), node.y - height, max(near, far), node.y + height
    return node.x - node.width / 2, node.y - height, node.x + node.width / 2, node.y + height


def overlap(one: Node, other: Node) -> bool:
    left, top, right, bottom = box(one)
    left2, top2, right2, bottom2 = box(other)
    return left < right2 and left2 < right and top < bottom2 and top2 < bottom


SIZES = [(1, 0), (2, 1), (3, 2), (5, 12), (24, 24), (24, 3), (13, 24), (60, 60)]


@pytest.mark.parametrize(("memories", "concepts"), SIZES)
def test_no_two_nodes_overlap_and_none_leaves_the_picture(memories: int, concepts: int) -> None:
    """Whatever there is of memories and concepts, at most 49 nodes are drawn, and the first is the concept's."""
    picture = drawn(neighbourhood(memories, concepts))
    assert [(one.name, two.name) for one, two in combinations(picture.nodes, 2) if overlap(one, two)] == []
    for node in picture.nodes:
        left, top, right, bottom = box(node)
        assert left >= 0, node
        assert top >= 0, node
        assert right <= picture.width, node
        assert bottom <= picture.height, node
    assert len(picture.nodes) <= 49
    assert (picture.nodes[0].kind, picture.nodes[0].name) == ("middle", "marit")


def test_every_memory_is_linked_with_the_middle_and_with_the_drawn_concepts_that_it_has() -> None:
    """And with nothing else."""
    found = neighbourhood(6, 9)
    picture = drawn(found)
    linked = {(picture.nodes[line.start].name, picture.nodes[line.end].name) for line in picture.lines}
    assert linked == {
        (str(memory.id), name) for memory in found.newest for name in ["marit", *memory.concepts]
    }  # fmt: skip
    assert len(picture.lines) == len(linked)


def test_the_same_neighbourhood_gives_the_same_picture() -> None:
    found = neighbourhood(24, 24)
    assert drawn(found) == drawn(found)


def test_what_is_linked_stands_on_the_same_side() -> None:
    """Two groups of memories that share nothing with each other are kept apart, although they alternate in time."""
    newest = [ShownMemory(id=n, content="x", concepts=["even" if n % 2 == 0 else "odd"]) for n in range(8, 0, -1)]
    shared = [SharedConcept("even", 4), SharedConcept("odd", 4)]
    picture = drawn(Neighbourhood("marit", 8, more=False, newest=newest, sharing=2, shared=shared))
    sides = {node.name: node.side for node in picture.nodes}
    assert {sides[str(n)] for n in (2, 4, 6, 8)} == {sides["even"]}
    assert {sides[str(n)] for n in (1, 3, 5, 7)} == {sides["odd"]}


def test_a_shared_concept_that_no_drawn_memory_has_is_left_out() -> None:
    """The memories that have it are older than those that are drawn, and it would float without a line."""
    newest = [ShownMemory(id=2, content="x", concepts=["nas-01"])]
    shared = [SharedConcept("nas-01", 3), SharedConcept("boat", 2)]
    picture = drawn(Neighbourhood("marit", 9, more=False, newest=newest, sharing=2, shared=shared))
    assert [node.name for node in picture.nodes] == ["marit", "2", "nas-01"]


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (neighbourhood(1, 0), "1 memory has marit; concepts that several of them share: 0."),
        (neighbourhood(3, 2), "3 memories have marit; concepts that several of them share: 2."),
        (
            neighbourhood(24, 24, more=True, sharing=70),
            (
                "100 or more memories have marit; concepts that several of them share: 70."
                " Drawn are only the newest 24 memories and 24 of the shared concepts."
            ),
        ),
    ],
)
def test_the_picture_says_how_much_of_everything_it_draws(found: Neighbourhood, told: str) -> None:
    assert drawn(found).told == told


def test_a_long_text_is_shortened_and_a_long_name_is_kept_beside() -> None:
    """A memory may hold 100,000 characters, of which the picture needs the first few."""
    name = "https://example.org/" + "x" * 500
    newest = [ShownMemory(id=1, content="many \n\n words " * 7000, concepts=[name])]
    picture = drawn(Neighbourhood("marit", 1, more=False, newest=newest, sharing=1, shared=[SharedConcept(name, 2)]))
    assert len(json.dumps(asdict(picture))) < 3000
    assert picture.nodes[1].text.startswith("many words many words")
    assert picture.nodes[2].name == name
    assert max(len(node.text) for node in picture.nodes) == 60
