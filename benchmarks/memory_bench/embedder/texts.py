"""Makes texts with an exact number of tokens, so that every measured program does the same amount of work."""

import random
from collections.abc import Callable

# Each word is one token of BERT's vocabulary, which the default model and the bge family share.
_WORDS = """
time year people way day man thing woman life child world school state family student group country problem hand part
place case week company system program question work government number night point home water room mother area money
story fact month lot right study book eye job word business issue side kind head house service friend father power hour
game line end member law car city community name president team minute idea body information back parent face others
level office door health person art war history party result change morning reason research girl guy moment air teacher
force education
"""
WORDS = tuple(_WORDS.split())
_SPECIAL = 2  # the sequence's first and last token


def texts_of(tokens: int, count: int, seed: int) -> list[str]:
    """Return `count` different texts of `tokens` tokens each, including the two tokens that the model adds."""
    rng = random.Random(f"{seed}-{tokens}")  # noqa: S311 -- a fixed choice, not a secret
    return [" ".join(rng.choices(WORDS, k=tokens - _SPECIAL)) for _ in range(count)]


def check_lengths(count_tokens: Callable[[str], int], lengths: set[int]) -> None:
    """Check with the model's own tokenizer that generated texts have the wanted numbers of tokens.

    Raises:
        ValueError: the tokenizer splits the words differently, so lengths in the results would be wrong.
    """
    for wanted in sorted(lengths):
        found = count_tokens(texts_of(wanted, 1, seed=0)[0])
        if found != wanted:
            raise ValueError(f"texts of {wanted} tokens have {found} under this model's tokenizer; use a BERT model")
