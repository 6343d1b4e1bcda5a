"""What the first tokens of an answer weigh, for the language models for which that was fitted to known answers.

How likely Yes and No are is not all that a model knows. How likely it holds 250 other tokens, of which it would hardly
ever say one, tells restatements from other pairs far better (ADR 35). So its answer is read by a weighted sum over
tokens, a verbaliser (T. Schick and H. Schütze, Exploiting Cloze Questions for Few Shot Text Classification and Natural
Language Inference, EACL 2021). The weights are a logistic regression's, fitted by `make bench-judging` to what the
rules leave open on examples/restatements.

They fit one model alone. It is recognised by what it answers in the trial, since a name may stand for anything.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from statistics import fmean

LARGEST_DIFFERENCE = 0.5
"""The root mean square of the differences of a token's mean log-probability, up to which a model is the known one."""

_LEAST = 1e-9  # probability, for a token that a server rounds to none


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model whose tokens' weights are known.

    `weights` are added up, each times the natural logarithm of its token's probability, to log-odds, whose mean over
    the pairs that they were fitted to is `mean`. `usual` is the mean of that logarithm over the examples of the trial,
    for the same tokens.
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
        """Return the log-odds that an answer adds to those of the rules, but for a constant."""
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
