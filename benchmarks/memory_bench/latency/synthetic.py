"""Makes any number of synthetic memories with the statistics of real memories, reproducibly from a fixed seed.

The cost of recall depends on how often words occur and on how close together the vectors are, so both are modelled.

Word frequencies follow the Zipf-Mandelbrot law. The commonest words are English stop words, so Postgres drops about
half of the words of a text, as in English texts, and the frequencies of the remaining lexemes have a long tail, as in
real texts. The other words are made up of consonants, so that the stemmer leaves them unchanged and every word is one
lexeme.

Vectors are scattered around topics, and the variance of the numbers in a vector falls from the first dimension to the
last by a power law. The exponent of this law is chosen so that a few thousand synthetic vectors have the same local
dimensionality (maximum likelihood over fifty neighbours) as the all-MiniLM-L6-v2 vectors of the public labelled sets.
Independent random vectors would not serve, because in 1,024 dimensions all of them are equally far apart.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]
Integers: TypeAlias = NDArray[np.int64]

DIMENSIONS = 1024
WORDS_PER_TEXT = 60
WORDS_PER_QUERY = 10
BLOCK = 5_000  # rows that are made at a time
VOCABULARY = 200_000
SEED = 20_26

_OFFSET = 2.7  # Mandelbrot's, for English
_TOPICS = 4_000
_TOPIC_SHARE = 0.5  # of a vector's variance
_SPECTRUM = 0.6  # variance of dimension i is (i + 1) to the power of minus twice this
_QUERY_NOISE = 0.6  # a question lies as far from its answer as a typical neighbour does
_QUESTION_BLOCKS = 20  # making a block takes a tenth of a second, so questions are about a few blocks only
_CONSONANTS = "bcdfghjklmnpqrtvwxz"
_STOP_WORDS = (  # noqa: SIM905  (as a list it would fill a page)
    # All of them are in Postgres' english.stop.
    "the of and to a in is that it was i for on with as be at by this had not but from or are have an they which you"
    " were her all she there their we him been has when who will more no if out so what up its about into than them"
    " can only other some these then do any my now such our over me most after"
).split()


@dataclass(frozen=True, slots=True)
class Questions:
    """The texts and unit vectors of questions, each made from one row; the vectors have the shape (count, 1024)."""

    texts: list[str]
    vectors: Floats


class Synthetic:
    """A generator of rows (texts, vectors and importance), block by block, and of questions about these rows."""

    def words(self, block: int) -> Integers:
        """Return the words of one block's texts as frequency ranks, counted from 0; shape (BLOCK, WORDS_PER_TEXT)."""
        chance = np.random.default_rng([SEED, 1, block])
        drawn: Integers = np.searchsorted(self._cumulative, chance.random((BLOCK, WORDS_PER_TEXT)))
        return drawn

    def texts(self, block: int) -> list[str]:
        """Return the texts of one block."""
        return [" ".join(words) for words in self._spelt[self.words(block)].tolist()]

    def vectors(self, block: int) -> Floats:
        """Return the unit vectors of one block, shape (BLOCK, DIMENSIONS)."""
        chance = np.random.default_rng([SEED, 2, block])
        topics = chance.integers(0, _TOPICS, BLOCK)
        noise = self._shaped(chance.standard_normal((BLOCK, DIMENSIONS), dtype=np.float32))
        return _unit(np.sqrt(_TOPIC_SHARE) * self._centres[topics] + np.sqrt(1 - _TOPIC_SHARE) * noise)

    def lexemes(self, block: int) -> Integers:
        """Return the words of one block's texts as word numbers, -1 for stop words; shape (BLOCK, WORDS_PER_TEXT)."""
        numbers: Integers = np.maximum(self.words(block) - len(_STOP_WORDS), -1)
        return numbers

    @property
    def numbers(self) -> dict[str, int]:
        """The number of every word that is not a stop word; `lexemes` represents words by these numbers."""
        return {word: number for number, word in enumerate(self._spelt[len(_STOP_WORDS) :])}

    def importance(self, block: int) -> Floats:
        """Return the importance of one block's rows, from 0 to 1."""
        return np.random.default_rng([SEED, 3, block]).random(BLOCK, dtype=np.float32)

    def questions(self, rows: int, count: int, *, stream: int = 0) -> Questions:
        """Return `count` questions about the first `rows` rows: ten words of a row, and a vector near that row's."""
        chance = np.random.default_rng([SEED, 4, stream])
        blocks = chance.choice(rows // BLOCK, min(rows // BLOCK, _QUESTION_BLOCKS), replace=False).tolist()
        words = {block: self.words(block) for block in blocks}
        near = {block: self.vectors(block) for block in blocks}
        texts, vectors = [], []
        for number in range(count):
            block, place = blocks[number % len(blocks)], int(chance.integers(BLOCK))
            chosen = chance.choice(WORDS_PER_TEXT, WORDS_PER_QUERY, replace=False)
            texts.append(" ".join(self._spelt[words[block][place, chosen]]))
            noise = self._shaped(chance.standard_normal((1, DIMENSIONS), dtype=np.float32))[0]
            vectors.append(near[block][place] + _QUERY_NOISE * noise)
        return Questions(texts, _unit(np.asarray(vectors, dtype=np.float32)))

    @cached_property
    def _cumulative(self) -> NDArray[np.float64]:
        weights = 1 / (np.arange(1, VOCABULARY + 1) + _OFFSET)
        cumulative: NDArray[np.float64] = np.cumsum(weights / weights.sum())
        cumulative[-1] = 1.0
        return cumulative

    @cached_property
    def _spelt(self) -> NDArray[np.object_]:
        made = [*_STOP_WORDS, *(_spell(number) for number in range(VOCABULARY - len(_STOP_WORDS)))]
        return np.array(made, dtype=object)

    @cached_property
    def _centres(self) -> Floats:
        chance = np.random.default_rng([SEED, 0])
        return self._shaped(chance.standard_normal((_TOPICS, DIMENSIONS), dtype=np.float32))

    @cached_property
    def _deviations(self) -> Floats:
        falling: NDArray[np.float64] = np.arange(1, DIMENSIONS + 1, dtype=np.float64) ** -_SPECTRUM
        scaled: Floats = (falling / np.sqrt((falling**2).sum())).astype(np.float32)
        return scaled

    def _shaped(self, normal: Floats) -> Floats:
        shaped: Floats = normal * self._deviations
        return shaped


def _spell(number: int) -> str:
    letters = []
    number += len(_CONSONANTS) ** 3  # four letters at least
    while number:
        number, letter = divmod(number, len(_CONSONANTS))
        letters.append(_CONSONANTS[letter])
    return "".join(letters)


def _unit(vectors: Floats) -> Floats:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Floats = (vectors / lengths).astype(np.float32)
    return scaled
