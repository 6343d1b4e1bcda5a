"""Invented texts and questions about them, the same in each run."""

import random

_WORDS = 8000
_TEXT_WORDS = 14


def vocabulary() -> list[str]:
    """Return 8,000 invented words."""
    heads, tails = "bdfgklmnprstvz", "aeiou"
    syllables = [head + tail for head in heads for tail in tails]
    generator = random.Random(7)  # noqa: S311  (the same words in every run)
    return ["".join(generator.choices(syllables, k=3)) for _ in range(_WORDS)]


def texts(count: int) -> list[str]:
    """Return `count` invented memory texts, the same in each run."""
    generator, words = random.Random(8), vocabulary()  # noqa: S311  (as above)
    return [" ".join(generator.choices(words, k=_TEXT_WORDS)) for _ in range(count)]


def question(text: str, generator: random.Random) -> str:
    """Return five words of a memory's text in random order, as a question about that memory."""
    return " ".join(generator.sample(text.split(), 5))
