"""Fits what the first tokens of a language model's answers weigh, to the restatements of other people.

The weights are those of a logistic regression with a quadratic penalty over the logarithms of the tokens'
probabilities, with the rules' log-odds as its offset: they learn what the rules leave open. The mean of each voice is
taken away before, as `memory curate find` takes away that of all pairs it has asked about.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from memory_bench.curation.fitting import Array, logistic
from memory_bench.curation.other_people import OtherPeople
from memory_recall.curation.judging_examples import TRIAL, question
from memory_recall.curation.known_models import KnownModel, log_probabilities
from memory_recall.curation.model_answers import FEW_TOKENS, MANY_TOKENS, JudgingModel, evidence, question_about
from memory_recall.errors import EmbedderRejected

_SHARE = 0.9  # of the answers in which a token has to be among the likeliest
_PENALTY = 1.0
_STEPS = 30
_DIGITS = 3


class KeptAnswers:
    """Asks a language model each question once, for many tokens if its server gives them, and keeps the answers.

    With a file, they are kept there, too, and those of this model that are in it are not asked for again.
    """

    def __init__(self, model: JudgingModel, name: str, file: Path | None = None) -> None:
        self.gives_many = True
        self._model = model
        self._name = name
        self._file = file
        lines = file.read_text(encoding="utf-8").splitlines() if file is not None and file.exists() else []
        found = [json.loads(line) for line in lines]
        self._kept: dict[str, Mapping[str, float]] = {
            one["asked"]: one["tokens"] for one in found if one["model"] == name
        }

    async def first_token(
        self, instruction: str, examples: Sequence[tuple[str, str]], text: str, /, *, most: int
    ) -> Mapping[str, float]:
        """Return the answer to a question that was asked before, or else the model's; it may have more tokens."""
        if text not in self._kept:
            ask = partial(self._model.first_token, instruction, examples, text)
            try:
                answer = await ask(most=MANY_TOKENS if self.gives_many else most)
            except EmbedderRejected:
                answer = await ask(most=FEW_TOKENS)
                self.gives_many = False
            self.keep(text, answer)
        return self._kept[text]

    def keep(self, text: str, answer: Mapping[str, float]) -> None:
        """Keep the answer to a question."""
        self._kept[text] = answer
        if self._file is not None:
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"model": self._name, "asked": text, "tokens": answer}) + "\n")

    def answer_to(self, text: str) -> Mapping[str, float] | None:
        """Return the answer to a question, or None if it was not asked."""
        return self._kept.get(text)


@dataclass(frozen=True, slots=True)
class Asked:
    """The pairs about which a model was asked: its answers, the rules' log-odds, the labels, and the voices."""

    answers: Sequence[Mapping[str, float]]
    offsets: Array
    labels: Array
    voices: npt.NDArray[np.str_]


def asked_about(answers: KeptAnswers, others: OtherPeople, scores: Array) -> Asked:
    """Return those pairs of other people about which the model was asked, and answered Yes or No."""
    material = others.material
    found = [
        (place, answer)
        for place, pair in enumerate(material.pairs)
        if (answer := answers.answer_to(question_about(pair))) is not None and evidence(answer, None) is not None
    ]
    places = [place for place, _ in found]
    likely = np.clip(scores[places], 1e-9, 1 - 1e-9)
    return Asked(
        [answer for _, answer in found],
        np.log(likely / (1 - likely)),
        material.labels[places],
        others.voices[places],
    )


def trial_answers(answers: KeptAnswers) -> list[Mapping[str, float]]:
    """Return the model's answers to the examples of the trial, which were asked before any pair."""
    return [answers.answer_to(question(one.older, one.newer)) or {} for one in TRIAL]


def fit_tokens(
    name: str, asked: Asked, trial: Sequence[Mapping[str, float]], *, without: str | None = None
) -> KnownModel:
    """Return what the tokens of a model weigh by all pairs but those of the voice `without`."""
    chosen = [place for place, voice in enumerate(asked.voices) if voice != without]
    answers = [asked.answers[place] for place in chosen]
    counts = Counter(token for answer in answers for token in answer)
    tokens = sorted(token for token, count in counts.items() if count >= _SHARE * len(answers))
    rows = np.array([list(log_probabilities(answer, tokens).values()) for answer in answers])
    means = []
    for voice in np.unique(asked.voices[chosen]):
        own = asked.voices[chosen] == voice
        means.append(rows[own].mean(axis=0))
        rows[own] -= means[-1]
    weights = _regress(rows, asked.labels[chosen], asked.offsets[chosen]).round(_DIGITS)
    mean = np.mean([one @ weights for one in means])
    usual = np.array([list(log_probabilities(answer, tokens).values()) for answer in trial]).mean(axis=0)
    return KnownModel(
        name,
        dict(zip(tokens, weights.tolist(), strict=True)),
        round(float(mean), _DIGITS),
        dict(zip(tokens, usual.round(_DIGITS).tolist(), strict=True)),
    )


def _regress(rows: Array, labels: Array, offsets: Array) -> Array:
    """Return the weights of a logistic regression with offsets, found by Newton's method.

    Its bias is not returned: what all answers have in common is taken away when the weights are used.
    """
    columns = np.column_stack([np.ones(len(rows)), rows])
    penalty = np.diag([0.0, *[_PENALTY] * rows.shape[1]])
    weights = np.zeros(columns.shape[1])
    for _ in range(_STEPS):
        likely = logistic(columns @ weights + offsets)
        gradient = columns.T @ (labels - likely) - penalty @ weights
        curvature = (columns.T * (likely * (1 - likely))) @ columns + penalty
        weights = weights + np.linalg.solve(curvature, gradient)
    return weights[1:]
