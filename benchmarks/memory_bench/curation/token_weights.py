"""Fits a weight for each of the likeliest first tokens of a language model's answers, to examples/restatements.

The weights are those of a logistic regression with a quadratic penalty. Its inputs are the logarithms of the tokens'
probabilities, less their mean over the pairs of one voice, as `memory curate find` subtracts the mean over all pairs
that it has asked about. The rules' log-odds are its offsets, so the weights learn what the rules leave open.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from memory_bench.curation.fitting import Array, newton
from memory_bench.curation.other_people import OtherPeople
from memory_recall.curation.judging_examples import TRIAL, question
from memory_recall.curation.known_models import KnownModel, log_probabilities
from memory_recall.curation.model_answers import FEW_TOKENS, MANY_TOKENS, JudgingModel, evidence, question_about
from memory_recall.errors import EmbedderBroken, EmbedderRejected

_SHARE = 0.9  # of the answers in which a token has to be among the likeliest
_PENALTY = 1.0
_DIGITS = 3


class KeptAnswers:
    """Asks a language model each question once, for many tokens if its server returns so many, and keeps the answers.

    With a file, the answers are also kept there, and a later run does not ask again for those of the same model.
    `gives_many` says whether every answer so far has as many tokens as a known model's must have.
    """

    def __init__(self, model: JudgingModel, name: str, file: Path | None = None) -> None:
        self._model = model
        self._name = name
        self._file = file
        self._kept: dict[str, Mapping[str, float]] = {}
        self.gives_many = True
        for line in _complete_lines(file) if file is not None and file.exists() else []:
            record = json.loads(line)
            if record["model"] == name:
                self._kept[record["asked"]] = record["tokens"]
                self.gives_many = self.gives_many and record["many"]

    async def first_token(
        self, instruction: str, examples: Sequence[tuple[str, str]], text: str, /, *, most: int
    ) -> Mapping[str, float]:
        """Return the answer that is kept for the question, or ask the model. It may have more than `most` tokens."""
        if text not in self._kept:
            ask = partial(self._model.first_token, instruction, examples, text)
            try:
                answer = await ask(most=MANY_TOKENS if self.gives_many else most)
            except (EmbedderRejected, EmbedderBroken):
                answer = await ask(most=FEW_TOKENS)
                self.gives_many = False
            self.keep(text, answer)
        return self._kept[text]

    def keep(self, text: str, answer: Mapping[str, float]) -> None:
        """Keep the answer to a question."""
        self._kept[text] = answer
        if self._file is not None:
            with self._file.open("a", encoding="utf-8") as file:
                record = {"model": self._name, "many": self.gives_many, "asked": text, "tokens": answer}
                file.write(json.dumps(record) + "\n")

    def answer_to(self, text: str) -> Mapping[str, float] | None:
        """Return the answer to a question, or None if it was not asked."""
        return self._kept.get(text)


def _complete_lines(file: Path) -> list[str]:
    """Return the file's lines, and remove a last one that was cut off when its writer was killed."""
    *lines, cut = file.read_text(encoding="utf-8").split("\n")
    if cut:
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return lines


@dataclass(frozen=True, slots=True)
class Asked:
    """What weights are fitted to: each pair's answer, its log-odds by the rules, its label (0 or 1) and its voice."""

    answers: Sequence[Mapping[str, float]]
    offsets: Array
    labels: Array
    voices: npt.NDArray[np.str_]


def asked_about(answers: KeptAnswers, others: OtherPeople, scores: Array) -> Asked:
    """Return the pairs that the model was asked about and answered with Yes or No; `scores` are those by the rules."""
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
    """Fit the weights of a model's tokens to the pairs of all voices, or of all but the voice `without`.

    `trial` holds the model's answers to the examples by which it is recognised later.
    """
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
    _, fitted = newton(rows, asked.labels[chosen], asked.offsets[chosen], _PENALTY)
    weights = fitted.round(_DIGITS)
    mean = np.mean([one @ weights for one in means])
    usual = np.array([list(log_probabilities(answer, tokens).values()) for answer in trial]).mean(axis=0)
    return KnownModel(
        name,
        dict(zip(tokens, weights.tolist(), strict=True)),
        round(float(mean), _DIGITS),
        dict(zip(tokens, usual.round(_DIGITS).tolist(), strict=True)),
    )
