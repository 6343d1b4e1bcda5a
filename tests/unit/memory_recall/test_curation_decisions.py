"""Which pairs are proposed, and as what."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memory_recall.contrib.curation import proposal_file
from memory_recall.contrib.curation.decisions import WEIGHTS, Action, Decider, choose, kind
from memory_recall.contrib.curation.features import Features, Frequencies, Memory, Pair, compute_features
from memory_recall.contrib.curation.proposal_file import Proposal, read_proposals, write_proposals
from memory_recall.errors import InvalidInput

FREQUENCIES = Frequencies(100, {"house": 50}, {"network": 40})


def memory(number: int, content: str, *tags: str) -> Memory:
    """A memory whose terms are its words."""
    terms = frozenset(content.lower().strip(".").split())
    created = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=number)
    return Memory(number, content, frozenset(tags), terms, created, f"{number:032x}")


OLD = memory(1, "The resolver is pihole", "network", "pihole")


@pytest.mark.parametrize(
    ("newer", "action"),
    [
        ("Pihole gave way to technitium", Action.SUPERSEDE),
        ("The resolver is still pihole with thirty more block lists", Action.UPDATE),
        ("The resolver is pihole", Action.NOOP),
        ("Technitium is the resolver now", Action.SUPERSEDE),
    ],
)
def test_the_words_of_the_newer_text_tell_what_it_is_to_the_older_one(newer: str, action: Action) -> None:
    """Words of change without words of repetition replace; what adds nothing changes nothing."""
    assert kind(Pair(OLD, memory(2, newer), 0.9), FREQUENCIES) is action


def test_a_memory_is_given_one_successor_the_most_likely_one() -> None:
    """A pair below the threshold is shown as one that stays, and one far below it is not shown."""
    newer = [memory(number, f"Pihole gave way to number {number}") for number in (2, 3, 4, 5)]
    pairs = [Pair(OLD, one, 0.5) for one in newer]
    judged = choose(pairs, [0.6, 0.9, 0.4, 0.05], FREQUENCIES, threshold=0.5)
    assert [(one.pair.newer.id, one.action) for one in judged] == [(3, Action.SUPERSEDE), (4, Action.ADD)]


def test_rare_words_and_tags_count_for_more_than_common_ones() -> None:
    """A pair that shares a rare tag overlaps more than one that shares a common tag, and both share one."""
    rare, common = memory(2, "Two piholes were removed", "pihole", "cellar"), memory(3, "My house", "network", "cellar")
    first, second = compute_features([Pair(OLD, rare, 0.5), Pair(OLD, common, 0.5)], FREQUENCIES)
    assert first.tag_overlap > 3 * second.tag_overlap > 0
    assert (first.cue, second.cue) == (1, 0)
    assert first.shared_tags == second.shared_tags == 1
    alone, beside = FREQUENCIES.tag_weight("pihole"), FREQUENCIES.tag_weight("network")
    assert alone > 3 * beside


def test_every_feature_has_a_weight_and_no_other_does() -> None:
    """A feature without a weight would be computed for nothing."""
    assert set(WEIGHTS) == set(Features.__dataclass_fields__)


def proposal(number: int, action: Action = Action.UPDATE) -> Proposal:
    return Proposal(
        action=action, decided_by=Decider.RULES, id=number, superseded_by=99, score=0.5,
        older="my secret plan", newer="my newer plan", text_hash="a" * 32, successor_hash="b" * 32,
    )  # fmt: skip


def test_proposals_are_read_as_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "proposals.jsonl"
    assert len(write_proposals(file, [proposal(1), proposal(2, Action.ADD)])) == 2
    assert read_proposals(file) == [proposal(1), proposal(2, Action.ADD)]
    assert "plan" not in repr(proposal(1))


@pytest.mark.parametrize("bound", ["MAX_PROPOSALS", "MAX_BYTES"])
def test_a_file_never_has_more_than_can_be_read_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    """The best proposals are written, and returned so that these alone are counted."""
    proposals = [proposal(number) for number in range(1, 6)]
    three = sum(len(one.model_dump_json()) + 1 for one in proposals[:3])
    monkeypatch.setattr(proposal_file, bound, 3 if bound == "MAX_PROPOSALS" else three + 5)
    file = tmp_path / "proposals.jsonl"
    assert write_proposals(file, proposals) == proposals[:3]
    assert read_proposals(file) == proposals[:3]


@pytest.mark.parametrize(
    "lines",
    [
        '{"my secret plan": 1}',
        "my secret plan",
        f"{proposal(1).model_dump_json()}\n{proposal(1).model_dump_json()}",
        proposal(1).model_dump_json().replace("UPDATE", "my secret plan"),
    ],
)
def test_a_line_that_is_no_proposal_is_named_by_number_and_not_quoted(tmp_path: Path, lines: str) -> None:
    """Also a second successor of one memory; the file holds memories, and errors are logged."""
    file = tmp_path / "proposals.jsonl"
    file.write_text(lines)
    with pytest.raises(InvalidInput, match=r"Line [12] of ") as refused:
        read_proposals(file)
    assert "secret plan" not in str(refused.value)
