"""What the curation benchmark counts as found, and how it halves the chains."""

import json
from pathlib import Path
from typing import Any

from memory_bench.curation.recalls import newer_first
from memory_bench.curation.truth import Truth, read_truth
from memory_bench.harness.dataset import Query

HOMELAB = Path(__file__).parents[3] / "examples" / "homelab"


def truth(tmp_path: Path) -> Truth:
    """Two chains, 1-2-3 and 4-5, and one judged pair."""
    restatements = [(2, 1, "replaces"), (3, 2, "says_again"), (5, 4, "replaces")]
    (tmp_path / "restatements").write_text(
        "\n".join(json.dumps({"id": newer, "restates": older, "kind": kind}) for newer, older, kind in restatements)
    )
    (tmp_path / "near").write_text(
        '{"older": 1, "newer": 9, "judged": "replaces"}\n{"older": 4, "newer": 9, "judged": "neither"}'
    )
    return read_truth(tmp_path / "restatements", tmp_path / "near")


def test_what_follows_from_two_restatements_is_found_and_what_was_judged_is_not_wrong(tmp_path: Path) -> None:
    made = truth(tmp_path)
    assert made.closure == {(1, 2), (2, 3), (1, 3), (4, 5)}
    assert made.judged == {(1, 9)}


def test_a_chain_is_never_in_both_halves(tmp_path: Path) -> None:
    """By turns and by chance; a memory without a chain goes by its id."""
    pairs = [(1, 2), (2, 3), (1, 3), (4, 5), (1, 9), (1, 8)]
    for seed in (None, 0, 1, 2):
        first, second, third, other, *without = truth(tmp_path).halves(pairs, seed=seed)
        assert first == second == third != other
        assert without == [1, 0]


def test_a_question_counts_if_a_newer_memory_answers_it_and_one_of_the_two_is_shown(tmp_path: Path) -> None:
    """An absent memory stands last, and a pair that says again does not count."""
    made = truth(tmp_path)
    question = Query("q", "which?", "natural", None, frozenset({2, 5}))
    answers = {
        "right": ((2, None, 1.0), (1, 2, 0.9)),
        "only the older one": ((1, None, 1.0),),
        "one pair wrong": ((2, None, 1.0), (4, None, 0.9), (5, None, 0.8)),
        "neither": ((7, None, 1.0),),
    }
    counted = {name: newer_first([question], [answer], made) for name, answer in answers.items()}
    assert counted == {"right": (1, 1), "only the older one": (0, 1), "one pair wrong": (0, 1), "neither": (0, 0)}


def test_the_near_pairs_of_the_set_are_judged_once_and_are_no_restatements_of_it() -> None:
    """They are memories that are not sensitive, the older one first, and the set's page says how many they are."""

    def read(name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (HOMELAB / name).read_text(encoding="utf-8").splitlines()]

    memories = {row["id"]: row for row in read("corpus.jsonl")}
    pairs = [(pair["older"], pair["newer"]) for pair in read("near-pairs.jsonl")]
    made = read_truth(HOMELAB / "restatements.jsonl", HOMELAB / "near-pairs.jsonl")
    assert len(set(pairs)) == len(pairs)
    assert not set(pairs) & made.closure
    assert {pair["judged"] for pair in read("near-pairs.jsonl")} == {"says_again", "replaces", "neither"}
    assert all(memories[older]["created_at"] < memories[newer]["created_at"] for older, newer in pairs)
    assert not any(memories[one]["is_sensitive"] for pair in pairs for one in pair)
    assert f"\n{len(pairs)} near pairs" in (HOMELAB / "README.md").read_text(encoding="utf-8")
