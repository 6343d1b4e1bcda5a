"""Normalises texts for WordPiece as the published tokenizers of BERT do, where llama.cpp's own rules differ.

llama.cpp leaves Hangul syllables whole, which no vocabulary knows. It takes spacing vowel signs of Indic scripts for
accents and drops them, takes some control characters for spaces, and divides words of any length into pieces, where
the published tokenizers take a word of more than 100 characters for an unknown one.

What is left are characters that Unicode has got since its version 9: the published tables do not know that some of them
are accents or punctuation.
"""

import re
import sys
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import groupby

from memory_embedder.models.sound_vocabulary import WORD_START

_LONGEST_WORD = 100  # characters, `max_input_chars_per_word` of the published tokenizers
_UNKNOWN = "\U00010000"  # a syllable of Linear B, which no vocabulary has
_PIECE = 64  # characters that are decomposed at a time
_NO_SPACES = re.compile(r"[\x0b\x0c\x85]+")  # controls that llama.cpp takes for spaces; others are dropped by both
_DROPPED = {"Cc", "Cf", "Co"}  # controls, formats and private use, but not what Unicode has no character for
_ASCII_SYMBOLS = "$+<=>^`|~"  # each is a word of its own, as punctuation is
_IDEOGRAPHS = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F), (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Rules:
    """Patterns: accents (Unicode's category Mn), characters that belong to no word, and words that are too long."""

    accents: re.Pattern[str]
    dropped: re.Pattern[str]
    long_words: re.Pattern[str]


def normalize(text: str) -> str:
    """Return a text without accents, and with an unknown word in the place of each that is too long.

    The cost grows with the text's length alone, whatever the text is.
    """
    if not text.isascii():
        text = normalizing_rules().accents.sub("", _decompose(text))
    text = _NO_SPACES.sub("", text).replace(WORD_START, _UNKNOWN)
    if max(map(len, text.split()), default=0) > _LONGEST_WORD:
        rules = normalizing_rules()
        text = rules.long_words.sub(f" {_UNKNOWN} ", rules.dropped.sub("", text))
    return text


def _decompose(text: str) -> str:
    """Return a text with its characters decomposed (Unicode's NFD), computed a short piece at a time.

    Decomposing sorts each run of combining marks, in time that grows with the square of the run's length, and blocks
    every other thread meanwhile. Marks of one run that fall into two pieces may be in a wrong order. This does no harm,
    because the marks are dropped.
    """
    return "".join(unicodedata.normalize("NFD", text[start : start + _PIECE]) for start in range(0, len(text), _PIECE))


@cache
def normalizing_rules() -> _Rules:
    """Return the patterns. To find them in Unicode's tables takes half a second, during which no other thread runs."""
    categories = [unicodedata.category(chr(code)) for code in range(sys.maxunicode + 1)]
    spaces = "\t\n\r "
    alone = {code for code, category in enumerate(categories) if category[0] == "P"}
    alone |= {ord(sign) for sign in _ASCII_SYMBOLS}
    alone |= {code for first, last in _IDEOGRAPHS for code in range(first, last + 1)}
    dropped = [code for code, category in enumerate(categories) if category in _DROPPED and chr(code) not in spaces]
    return _Rules(
        accents=re.compile(f"[{_ranges(code for code, category in enumerate(categories) if category == 'Mn')}]+"),
        dropped=re.compile(f"[{_ranges(dropped)}]+"),
        long_words=re.compile(rf"[^\s{_ranges(sorted(alone))}]{{{_LONGEST_WORD + 1},}}"),
    )


def _ranges(codes: Iterable[int]) -> str:
    """Return what stands in a class of a regular expression for characters, given in their order."""
    found = []
    for _, run in groupby(enumerate(codes), lambda pair: pair[1] - pair[0]):
        members = [code for _, code in run]
        found.append(f"{re.escape(chr(members[0]))}-{re.escape(chr(members[-1]))}")
    return "".join(found)
