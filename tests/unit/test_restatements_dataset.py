"""The set of restatements in examples/restatements keeps what its README promises."""

import json
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.unit.test_homelab_dataset import (
    ADDRESS,
    ALLOWED_HOST_NAME,
    HOST_NAME,
    MEMORY_FIELDS,
    REAL_LOOKING_SECRETS,
    plain,
    searchable,
)

DATASET = Path(__file__).parents[2] / "examples" / "restatements"


def read(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATASET / name).read_text(encoding="utf-8").splitlines()]


MEMORIES = read("corpus.jsonl")
PAIRS = read("restatements.jsonl")
BY_ID = {row["id"]: row for row in MEMORIES}


def test_memories_are_numbered_from_one_and_have_exactly_the_documented_fields() -> None:
    assert [row["id"] for row in MEMORIES] == list(range(1, len(MEMORIES) + 1))
    for row in MEMORIES:
        named = {name: type(value) for name, value in row.items()}
        assert named == MEMORY_FIELDS | {"user_id": str, "voice": str}, row["id"]
        assert re.fullmatch("[a-z]+", row["category"]), row["id"]
        assert 0 <= row["importance"] <= 1, row["id"]
        assert re.fullmatch(r"(?:[^\s,]+(?:,[^\s,]+)*)?", row["tags"]), row["id"]
        assert "," not in row["expanded_keywords"], row["id"]
        assert not row["is_sensitive"], row["id"]


def test_no_text_occurs_twice() -> None:
    texts = Counter(plain(row["content"]) for row in MEMORIES)
    assert [text for text, count in texts.items() if count > 1] == []


def test_the_memories_of_a_person_stand_in_the_order_of_their_dates() -> None:
    for first, second in pairwise(MEMORIES):
        assert first["user_id"] != second["user_id"] or first["created_at"] < second["created_at"], second["id"]


def test_a_restatement_is_newer_than_what_it_restates_and_of_the_same_person() -> None:
    for pair in PAIRS:
        older, newer = BY_ID[pair["restates"]], BY_ID[pair["id"]]
        assert older["user_id"] == newer["user_id"], pair
        assert older["created_at"] < newer["created_at"], pair
        assert pair["kind"] in {"says_again", "replaces"}, pair


def test_no_memory_has_two_successors_or_two_predecessors() -> None:
    """So that a chain is a line, and what follows from it is known."""
    for name in ("restates", "id"):
        assert max(Counter(pair[name] for pair in PAIRS).values()) == 1


def test_every_person_has_enough_restatements_to_be_judged_alone() -> None:
    assert min(Counter(BY_ID[pair["id"]]["user_id"] for pair in PAIRS).values()) >= 15


def test_every_person_writes_in_one_voice_and_every_voice_is_that_of_at_least_two_people() -> None:
    people = {(row["voice"], row["user_id"]) for row in MEMORIES}
    assert len({person for _, person in people}) == len(people)
    assert min(Counter(voice for voice, _ in people).values()) >= 2


def test_no_address_and_no_host_name_could_be_somebody_s() -> None:
    """Addresses are of private ranges, and host names are reserved for documentation."""
    for row in MEMORIES:
        text = searchable(row)
        assert all(address.startswith(("10.", "192.168.")) for address in ADDRESS.findall(text)), row["id"]
        assert all(ALLOWED_HOST_NAME.search(name) for name in HOST_NAME.findall(text)), row["id"]


@pytest.mark.parametrize("kind", REAL_LOOKING_SECRETS)
def test_nothing_looks_like_a_real_credential(kind: str) -> None:
    assert [row["id"] for row in MEMORIES if REAL_LOOKING_SECRETS[kind].search(searchable(row))] == []


def test_the_readme_states_the_figures_of_the_set() -> None:
    text = " ".join((DATASET / "README.md").read_text(encoding="utf-8").split())
    lengths = [len(row["content"].split()) for row in MEMORIES]
    people = Counter(row["user_id"] for row in MEMORIES)
    kinds = Counter(pair["kind"] for pair in PAIRS)
    voices = Counter(BY_ID[pair["id"]]["voice"] for pair in PAIRS)
    stated = [
        f"{len(MEMORIES):,} memories of {len(people)} invented people",
        *(f"`{voice}`, {count} restatements" for voice, count in voices.items()),
        f"{min(people.values())} to {max(people.values())} a person, {min(lengths)} to {max(lengths)} words long",
        f"**{len(PAIRS)} restatements**, {kinds['replaces']} that replace and {kinds['says_again']} that say again",
    ]
    assert [figure for figure in stated if figure not in text] == []
