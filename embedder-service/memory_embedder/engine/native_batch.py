"""Fills llama.cpp's `llama_batch` structure through numpy arrays.

Writing the structure's fields one by one from Python takes close to a microsecond per token with the interpreter's lock
held, which slows both lanes and the HTTP server. Filling arrays takes the same time for one token as for a thousand.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from memory_embedder.engine.protocol import TokenIds


class NativeBatch:
    """The memory of one `llama_batch`, reused for every batch of one context."""

    def __init__(self, structure: Any, capacity: int, sequences: int) -> None:  # noqa: ANN401 -- a ctypes type
        self.capacity = capacity
        self.sequences = sequences
        self._token = np.zeros(capacity, dtype=np.int32)
        self._position = np.zeros(capacity, dtype=np.int32)
        self._counts = np.ones(capacity, dtype=np.int32)
        self._output = np.ones(capacity, dtype=np.int8)
        self._ids = np.arange(sequences, dtype=np.int32)
        self._id_addresses = self._ids.ctypes.data + self._ids.itemsize * np.arange(sequences, dtype=np.uintp)
        self._id_pointers = np.zeros(capacity, dtype=np.uintp)
        self._ramp = np.arange(capacity, dtype=np.int32)
        self.native = structure()
        fields: dict[str, npt.NDArray[Any]] = {
            "token": self._token,
            "pos": self._position,
            "n_seq_id": self._counts,
            "seq_id": self._id_pointers,
            "logits": self._output,
        }
        types = dict(structure._fields_)
        for field, array in fields.items():
            setattr(self.native, field, ctypes.cast(array.ctypes.data, types[field]))
        self.native.embd = None

    def fill(self, sequences: Sequence[TokenIds]) -> None:
        """Write sequences of token ids into the batch, one after another.

        Raises:
            ValueError: the sequences exceed the capacity in tokens or in sequences, or one of them is empty.
        """
        lengths = [len(sequence) for sequence in sequences]
        total = sum(lengths)
        if total > self.capacity or len(sequences) > self.sequences or not all(lengths):
            raise ValueError("a batch must fit and hold no empty sequence")
        np.concatenate(sequences, out=self._token[:total])
        start = 0
        for length in lengths:
            self._position[start : start + length] = self._ramp[:length]
            start += length
        self._id_pointers[:total] = np.repeat(self._id_addresses[: len(lengths)], lengths)
        self.native.n_tokens = total
