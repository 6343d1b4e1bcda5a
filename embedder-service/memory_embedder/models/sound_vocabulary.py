"""Finds what llama.cpp would end the process for: equal pieces, pieces that are too long, damaged maps of characters.

The compiled map of characters of a SentencePiece tokenizer is a double array, in which a text is followed from entry to
entry, byte by byte, and the replacements that its entries point to. llama.cpp ends the process, while it tokenises a
text, where an entry leads outside.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

WORD_START = "\u2581"  # llama.cpp's mark of the start of a word
MOST_PIECES = 1 << 20  # several times those of the largest model of the BERT family
LONGEST_PIECE = 1024  # characters of a Unigram piece: llama.cpp descends one call for each byte
LARGEST_MAP = 4 << 20  # bytes; that of SentencePiece's own rules has a quarter of one MiB
_HEAD = 4  # bytes that say how many the array has
_BLOCK = 256  # entries, one for each byte that may follow
_AT_ONCE = 4096  # places that are followed at a time

Entries = npt.NDArray[np.uint32]
Places = npt.NDArray[np.int64]


def repeated(pieces: Iterable[bytes]) -> bytes | None:
    """Return a piece that llama.cpp takes for the same as an earlier one; None if there is none.

    It reads each piece up to its first NUL, and gives an empty one a name by its number.
    """
    seen: set[bytes] = set()
    for index, piece in enumerate(pieces):
        read = piece.partition(b"\0")[0] or f"[EMPTY_{index}]".encode()
        if read in seen:
            return piece
        seen.add(read)
    return None


def is_sound(character_map: bytes) -> bool:
    """Return whether every text leads through entries of the map alone, and every replacement has an end."""
    size = int.from_bytes(character_map[:_HEAD], "little")
    replacements = character_map[_HEAD + size :]
    if len(character_map) > LARGEST_MAP or size < 4 or size % 4 or not replacements.endswith(b"\0"):
        return False
    return _stays_inside(np.frombuffer(character_map, "<u4", size // 4, _HEAD), len(replacements))


def _stays_inside(entries: Entries, replacements: int) -> bool:
    seen = np.zeros(len(entries), dtype=bool)
    waiting = _base(entries[:1])
    following = np.arange(1, _BLOCK)
    while waiting.size:
        places, waiting = waiting[:_AT_ONCE], waiting[_AT_ONCE:]
        if (places | (_BLOCK - 1)).max() >= len(entries):  # whatever byte follows, its entry is looked at
            return False
        seen[places] = True
        reached = places[:, None] ^ following
        reached = reached[entries[reached] & 0x800000FF == following]
        onward = reached ^ _base(entries[reached])
        ends = onward[entries[reached] >> 8 & 1 == 1]
        if ends.size and (ends.max() >= len(entries) or (entries[ends] & 0x7FFFFFFF).max() >= replacements):
            return False
        if onward.size and onward.max() >= len(entries):
            return False
        onward = np.unique(onward)
        waiting = np.concatenate([waiting, onward[~seen[onward]]])
    return True


def _base(entries: Entries) -> Places:
    return ((entries >> 10) << ((entries & 0x200) >> 6)).astype(np.int64)
