"""The states of a text's tokens before they are pooled, computed by llama.cpp with the embedder's own model file.

Texts are tokenised as the embedder does, and cut at its window.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from llama_cpp import llama_cpp as native

from memory_bench.second_stage.maxsim import TokenStates
from memory_embedder.engine.backends import load_backends
from memory_embedder.engine.native_batch import NativeBatch
from memory_embedder.engine.native_log import native_log
from memory_embedder.engine.profile_check import check_profile
from memory_embedder.engine.tokenizer import Tokenizer
from memory_embedder.errors import EmbedderError, ErrorKind
from memory_embedder.models.gguf_header import read_header
from memory_embedder.models.model_file import ModelFile
from memory_embedder.models.profiles import PROFILES

_BATCH_TOKENS = 256  # at least the window; attention takes more the wider a batch is
_SEQUENCES = 64
_FLASH_ATTENTION = 1


class TokenStateEncoder:
    """A model that computes the states of tokens; `threads` compute each batch. `close` frees it.

    Raises:
        EmbedderError: the file is not that of the profile, or llama.cpp cannot load it.
    """

    def __init__(self, path: Path, profile: str, *, threads: int) -> None:
        model = PROFILES[profile]
        load_backends(avoid_amx=False, gpu=False)
        with ModelFile(path) as file:
            header = read_header(file)
            check_profile(header, model, path)
            with native_log().loading():
                native.llama_backend_init()
                parameters = native.llama_model_default_params()
                parameters.n_gpu_layers = 0
                self._model: Any = native.llama_model_load_from_file(str(file.reference).encode(), parameters)
        if not self._model:
            raise EmbedderError(ErrorKind.CONFIGURATION, f"llama.cpp cannot load {path}; fetch it again.")
        self._dimensions = header.dimensions
        self._tokenizer = Tokenizer(
            native.llama_model_get_vocab(self._model), model.max_tokens, decomposes=header.decomposes
        )
        with native_log().expected():
            self._context: Any = native.llama_init_from_model(self._model, _context_parameters(threads))
        if not self._context:
            native.llama_model_free(self._model)
            raise EmbedderError(ErrorKind.ENGINE, "llama.cpp could not make a context; give it memory.")
        self._batch = NativeBatch(native.llama_batch, _BATCH_TOKENS, _SEQUENCES)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the context and the model."""
        native.llama_free(self._context)
        native.llama_model_free(self._model)

    def states(self, texts: Sequence[str]) -> Iterator[TokenStates]:
        """Yield the states of each text's tokens as the model pools them, not scaled.

        Raises:
            EmbedderError: llama.cpp failed on a batch.
        """
        batch: list[Any] = []
        for text in texts:
            tokens = self._tokenizer.encode(text).tokens
            if len(batch) == _SEQUENCES or sum(map(len, batch)) + len(tokens) > _BATCH_TOKENS:
                yield from self._compute(batch)
                batch = []
            batch.append(tokens)
        if batch:
            yield from self._compute(batch)

    def _compute(self, batch: Sequence[Any]) -> list[TokenStates]:
        self._batch.fill(batch)
        status = native.llama_encode(self._context, self._batch.native)
        found = native.llama_get_embeddings(self._context)
        if status != 0 or not found:
            raise EmbedderError(ErrorKind.ENGINE, f"llama.cpp failed on a batch (status {status}).")
        lengths = [len(tokens) for tokens in batch]
        rows = np.ctypeslib.as_array(found, (sum(lengths), self._dimensions))
        return np.split(rows.copy(), np.cumsum(lengths)[:-1])  # the next batch overwrites them


def _context_parameters(threads: int) -> Any:  # noqa: ANN401 -- a structure of an untyped library
    parameters = native.llama_context_default_params()
    parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = _BATCH_TOKENS
    parameters.n_seq_max = _SEQUENCES
    parameters.n_threads = parameters.n_threads_batch = threads
    parameters.embeddings = True
    parameters.pooling_type = native.LLAMA_POOLING_TYPE_NONE
    parameters.flash_attn_type = _FLASH_ATTENTION
    parameters.kv_unified = True
    parameters.no_perf = True
    return parameters
