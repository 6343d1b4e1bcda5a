"""Weights of the first token of an answer, for the language models for which such weights were fitted.

The probabilities of Yes and No are not all that an answer tells. Those of 250 other tokens, most of which the model
would hardly ever answer, tell restatements from other pairs far better (ADR 35). So an answer is read by a weighted sum
over tokens, a verbaliser (T. Schick and H. Schütze, Exploiting Cloze Questions for Few Shot Text Classification and
Natural Language Inference, EACL 2021). The weights are a logistic regression's, fitted by `make bench-judging` to what
the rules leave open on examples/restatements.

They fit one model alone. It is recognised by what it answers in the trial, since a name may stand for anything.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from statistics import fmean

LARGEST_DIFFERENCE = 0.5
"""How far a model's mean log-probabilities of tokens may be from the known ones (root mean square over the tokens)."""

_LEAST = 1e-9  # probability, for a token that a server rounds to none


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A language model for which weights of tokens were fitted.

    The evidence of an answer, in log-odds, is the sum of the `weights`, each times the natural logarithm of its token's
    probability; its mean over the pairs of the fit is `mean`. `usual` holds, for the same tokens, the mean of that
    logarithm over the model's answers to the examples of the trial.
    """

    name: str
    weights: Mapping[str, float]
    mean: float
    usual: Mapping[str, float]

    def is_model_of(self, trial: Sequence[Mapping[str, float]]) -> bool:
        """Return whether these answers to the examples of the trial are this model's."""
        logarithms = [log_probabilities(answer, self.usual) for answer in trial]
        squares = [(fmean(one[token] for one in logarithms) - usual) ** 2 for token, usual in self.usual.items()]
        return math.sqrt(fmean(squares)) <= LARGEST_DIFFERENCE

    def evidence(self, answer: Mapping[str, float]) -> float:
        """Return the evidence of an answer in log-odds, from which the mean of all answers has yet to be subtracted."""
        logarithms = log_probabilities(answer, self.weights)
        return sum(weight * logarithms[token] for token, weight in self.weights.items())


def log_probabilities(answer: Mapping[str, float], tokens: Iterable[str]) -> dict[str, float]:
    """Return the natural logarithm of the probability of each token; one that was not returned has the least of all."""
    least = max(min(answer.values(), default=0.0), _LEAST)
    return {token: math.log(max(answer.get(token, least), least)) for token in tokens}


def known_models() -> list[KnownModel]:
    """Read the known models from the package's file."""
    text = files(__package__).joinpath("known_models.json").read_text(encoding="utf-8")
    return [KnownModel(name, **fitted) for name, fitted in json.loads(text).items()]
