"""Light embedding models, which cost next to nothing and whose vectors show which model made them.

A text is turned into the hashed counts of its words and trigrams, so that texts that share words are near each other
and recall can be measured. The first number of a vector identifies the model: +sqrt(0.7) or -sqrt(0.7). The remaining
numbers form a vector of length sqrt(0.3). Therefore two vectors of one model have a cosine of at least 0.7 - 0.3 = 0.4,
and two vectors of different models have a cosine of at most -0.4: a negative cosine in a result shows that vectors of
different models were compared.
"""

import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

DIMENSIONS = 96
_MARK = 0.7


@dataclass(frozen=True)
class LightModel:
    """One light model; with `bad` it gives each text a random vector that has nothing to do with the text's words."""

    name: str
    sign: int
    seed: int
    bad: bool = False

    @property
    def digest(self) -> str:
        """An invented digest, in place of the digest of a model file."""
        return f"sha256:{self.name}"

    def vector(self, text: str) -> npt.NDArray[np.float32]:
        """Return the unit vector of a text, shape (96,)."""
        rest = self._noise(text) if self.bad else self._counts(text)
        rest *= np.sqrt(1 - _MARK) / max(float(np.linalg.norm(rest)), 1e-9)
        return np.concatenate(([self.sign * np.sqrt(_MARK)], rest)).astype(np.float32)

    def _noise(self, text: str) -> npt.NDArray[np.float64]:
        return np.random.default_rng(zlib.crc32(text.encode(), self.seed)).standard_normal(DIMENSIONS - 1)

    def _counts(self, text: str) -> npt.NDArray[np.float64]:
        words = text.lower().split()
        grams = [word[at : at + 3] for word in words for at in range(max(len(word) - 2, 0))]
        counts = np.zeros(DIMENSIONS - 1)
        for weight, parts in ((1.0, words), (0.3, grams)):
            for part in parts:
                hashed = zlib.crc32(part.encode(), self.seed)
                counts[hashed % (DIMENSIONS - 1)] += weight if hashed & 0x80000000 else -weight
        return counts


MODELS = {
    model.name: model
    for model in (LightModel("first", +1, 11), LightModel("second", -1, 23), LightModel("bad", -1, 37, bad=True))
}
