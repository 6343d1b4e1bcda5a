"""The engine on llama.cpp, through the low-level interface of llama-cpp-python.

The `Llama` class of llama-cpp-python turns flash attention off and decodes with masks over the whole batch, which costs
several times the throughput. Here a context has flash attention on and a batch no wider than asked for, and computes
nothing but the pooled vectors. llama.cpp aborts the process on unexpected input, so all input is checked beforehand.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import structlog
from llama_cpp import llama_cpp as native

from memory_embedder.engine.amx import amx_works
from memory_embedder.engine.backends import Backends, GpuDevice, find_gpus, load_backends
from memory_embedder.engine.memory_estimate import MemoryNeed, estimate_memory, largest_fitting, largest_within
from memory_embedder.engine.native_batch import NativeBatch
from memory_embedder.engine.native_log import NativeLog, native_log
from memory_embedder.engine.profile_check import check_profile, check_special_tokens
from memory_embedder.engine.protocol import EncodedText, EngineFacts, EngineOptions, PairTokenizer, TokenIds, Vectors
from memory_embedder.engine.tokenizer import Tokenizer, missing_special_token
from memory_embedder.engine.vectors import cut_vectors, finite_scores, unit_vectors, unusable_rows
from memory_embedder.errors import EmbedderError, ErrorKind, configuration_error
from memory_embedder.models.gguf_header import STRIPS_ACCENTS, GgufFacts, read_header
from memory_embedder.models.model_file import ModelFile
from memory_embedder.models.profiles import ModelProfile, Pooling, served_digest

_POOLINGS = {
    Pooling.MEAN: native.LLAMA_POOLING_TYPE_MEAN,
    Pooling.CLS: native.LLAMA_POOLING_TYPE_CLS,
    Pooling.LAST: native.LLAMA_POOLING_TYPE_LAST,
    Pooling.RANK: native.LLAMA_POOLING_TYPE_RANK,
}
_FLASH_ATTENTION = 1
_SEQUENCES = 64  # must divide the batch: llama.cpp aborts while it reserves a mean-pooling graph otherwise
_GROUP = 8  # the root of `_SEQUENCES`, which makes the fewest computations where one text spoils a full batch


class LlamaEngine:
    """A model loaded into the memory of this process.

    Raises:
        EmbedderError: the file has another digest, does not match the profile, is changed during loading or cannot be
            loaded by llama.cpp, or the model needs too much memory.
    """

    def __init__(self, options: EngineOptions) -> None:
        self._log = native_log()
        with ModelFile(options.path) as file:
            digest = file.verified_digest(options.digest)  # before anything of the file is interpreted
            if options.on_cpu is not None and not find_gpus():
                options = options.on_cpu
            self._load(options, file, digest)

    def _load(self, options: EngineOptions, file: ModelFile, digest: str) -> None:
        header = read_header(file)
        check_profile(header, options.profile, options.path, digest=options.digest)
        capacity = round_up(max(options.batch_tokens, options.profile.max_tokens), _SEQUENCES)
        if options.gpu_layers == 0:
            _fitting(options, header, capacity, [])  # before the trial, which loads the model, too
        # Beside a GPU little is left to the CPU, not worth loading a model twice.
        may_avoid = header.quantised and options.try_amx
        avoid_amx = may_avoid and (options.gpu_layers != 0 or not amx_works(file, options.profile))
        backends = load_backends(avoid_amx=avoid_amx, gpu=options.gpu_layers != 0)
        need = _fitting(options, header, capacity, backends.gpus)
        structlog.get_logger("memory_embedder.engine").info(
            "Loading the model",
            memory_estimate_mib=need.total >> 20,
            weights_mib=need.weights >> 20,
            contexts=need.context_count,
            gpu_layers=options.gpu_layers,
        )
        with self._log.loading():
            plain_buffers = avoid_amx and backends.amx
            self._model: Any = _load_model(options, file, plain_buffers=plain_buffers, normalizes=header.strips_accents)
        try:
            file.check_unchanged()
            self._check_widths(options)
            self._tokenizer = self._checked_tokenizer(options, normalizes=header.strips_accents)
        except EmbedderError:
            self.close()
            raise
        served = digest if options.profile.pooling is Pooling.RANK else served_digest(options.profile, digest)
        self._facts = _engine_facts(options.profile, header, backends, self._log, need, digest=served)

    def _check_widths(self, options: EngineOptions) -> None:
        """Check that llama.cpp will write as many numbers for each text as are read, and not fewer."""
        rank = options.profile.pooling is Pooling.RANK
        width = (native.llama_model_n_cls_out if rank else native.llama_model_n_embd_out)(self._model)
        if width != options.profile.width:
            raise configuration_error(
                f"llama.cpp gives out {width} numbers for a text with {options.path}, not the "
                f"{options.profile.width} of {options.profile.name}; serve another file.",
            )

    def _checked_tokenizer(self, options: EngineOptions, *, normalizes: bool) -> Tokenizer:
        vocabulary = native.llama_model_get_vocab(self._model)
        missing = missing_special_token(vocabulary)
        if missing is not None:
            raise configuration_error(
                f"{options.path} does not name by {missing} a token that its tokenizer puts into every text; fetch or "
                "convert the model again.",
            )
        tokenizer = Tokenizer(vocabulary, options.profile.max_tokens, normalizes=normalizes)
        check_special_tokens(options.profile, options.path, begins=tokenizer.begins, ends=tokenizer.ends)
        return tokenizer

    @property
    def facts(self) -> EngineFacts:
        """Properties of the loaded model."""
        return self._facts

    def encode(self, text: str) -> EncodedText:
        """Tokenise a text; a text longer than the model's window loses its end but keeps the final special token."""
        return self._tokenizer.encode(text)

    def pair_tokenizer(self, query: str) -> PairTokenizer:
        """Return a function that tokenises the query together with each text, for a reranker."""
        return self._tokenizer.pair_tokenizer(query)

    def computer(self, threads: int) -> "LlamaComputer":
        """Make a llama.cpp context of the model that computes with `threads` threads."""
        return LlamaComputer(self._model, self._facts, threads)

    def close(self) -> None:
        """Free the model."""
        if self._model is not None:
            native.llama_model_free(self._model)
            self._model = None


class LlamaComputer:
    """A llama.cpp context of a loaded model; one thread at a time may call it."""

    def __init__(self, model: native.llama_model_p, facts: EngineFacts, threads: int) -> None:
        self._facts = facts
        with native_log().expected():
            self._context = native.llama_init_from_model(model, _context_parameters(facts, threads))
        if not self._context:
            raise EmbedderError(
                ErrorKind.ENGINE,
                "llama.cpp could not make a context; lower --batch-tokens or --contexts, or give it memory.",
            )
        if native.llama_pooling_type(self._context) != _POOLINGS[facts.pooling]:
            self.close()
            raise configuration_error("llama.cpp did not take the model's pooling; the file is no embedder.")
        self._memory = native.llama_get_memory(self._context)  # encoders have none: that is what tells the two apart
        self._spoiled = False  # whether it may hold NaN or infinity
        self._batch = NativeBatch(native.llama_batch, facts.batch_capacity, facts.max_sequences)

    def embed(self, sequences: Sequence[TokenIds]) -> Vectors:
        """Compute one unit vector per sequence of token ids, as `protocol.Computer` says.

        Raises:
            EmbedderError: llama.cpp failed on the batch.
        """
        vectors = self._vectors(sequences)
        # One text may spoil all rows of its batch, depending on the kernels. Computing each text alone would tell which
        # one; computing groups first clears most of the others in fewer batches.
        for size in (_GROUP, 1):
            unusable = unusable_rows(vectors) if size < len(sequences) else []
            for start in range(0, len(unusable), size):
                places = unusable[start : start + size]
                vectors[places] = self._vectors([sequences[place] for place in places])
        return vectors

    def _vectors(self, sequences: Sequence[TokenIds]) -> Vectors:
        self._batch.fill(sequences)
        if self._memory:
            # To overwrite it with zeros takes writes of up to gigabytes. That is needed only after NaN or infinity: a
            # masked entry has the weight 0, and 0 times NaN is NaN.
            native.llama_memory_clear(self._memory, self._spoiled)
            status = native.llama_decode(self._context, self._batch.native)
        else:
            status = native.llama_encode(self._context, self._batch.native)
        if status != 0:
            raise EmbedderError(
                ErrorKind.ENGINE, f"llama.cpp failed on a batch (status {status}); send the request again."
            )
        vectors = self._scaled(self._read(len(sequences)))
        self._spoiled = bool(unusable_rows(vectors))
        return vectors

    def _scaled(self, rows: Vectors) -> Vectors:
        if self._facts.pooling is Pooling.RANK:
            return finite_scores(rows)
        if self._facts.width is not None:
            rows = cut_vectors(rows, self._facts.dimensions, normalizes=self._facts.normalizes_cut)
        return unit_vectors(rows)

    def use_threads(self, threads: int) -> None:
        """Set the number of threads for the next batches."""
        native.llama_set_n_threads(self._context, threads, threads)

    def close(self) -> None:
        """Free the context."""
        if self._context:
            native.llama_free(self._context)
            self._context = None

    def _read(self, count: int) -> Vectors:
        out = np.empty((count, self._facts.width or self._facts.dimensions), dtype=np.float32)
        address, row_bytes = out.ctypes.data, out.strides[0]
        for index in range(count):
            source = native.llama_get_embeddings_seq(self._context, index)
            if not source:
                raise EmbedderError(
                    ErrorKind.ENGINE, "llama.cpp returned no vector for a sequence; send the request again."
                )
            ctypes.memmove(address + index * row_bytes, source, row_bytes)
        return out


def round_up(number: int, step: int) -> int:
    """Return the least multiple of `step` that is not less than `number`."""
    return -(-number // step) * step


def _fitting(options: EngineOptions, header: GgufFacts, capacity: int, gpus: Sequence[GpuDevice]) -> MemoryNeed:
    """Return what the model needs with as many contexts as are wanted, or fewer if that many do not fit."""
    gpu, runtime = options.gpu_layers != 0 and bool(gpus), options.reserved is None
    least = options.contexts if options.least_contexts is None else options.least_contexts
    needs = [
        estimate_memory(header, capacity=capacity, contexts=number, gpu=gpu, runtime=runtime)
        for number in range(options.contexts, least - 1, -1)
    ]
    if not gpu:
        return largest_within(needs, options.memory)
    return largest_fitting(needs, gpus[0], options.gpu_memory_limit, options.reserved or 0)


def _load_model(options: EngineOptions, file: ModelFile, *, plain_buffers: bool, normalizes: bool) -> Any:  # noqa: ANN401 -- a pointer of an untyped library
    native.llama_backend_init()
    parameters = native.llama_model_default_params()
    parameters.n_gpu_layers = options.gpu_layers
    parameters.use_extra_bufts = not plain_buffers
    parameters.load_mode = native.LLAMA_LOAD_MODE_NONE  # a map would show what is written to the file later
    if normalizes:
        parameters.kv_overrides = _without_accents()
    model = native.llama_model_load_from_file(str(file.reference).encode(), parameters)
    if not model:
        raise configuration_error(
            f"llama.cpp cannot load {options.path}; check its digest, its architecture and the memory of this machine.",
        )
    return model


def _without_accents() -> Any:  # noqa: ANN401 -- an array of an untyped library
    """Return what tells llama.cpp to strip no accents, since `normalize` has done that; an empty key ends the array."""
    overrides: Any = (native.llama_model_kv_override * 2)()
    overrides[0].tag = native.LLAMA_KV_OVERRIDE_TYPE_BOOL
    overrides[0].key = STRIPS_ACCENTS.encode()
    overrides[0].value.val_bool = False
    return overrides


def _context_parameters(facts: EngineFacts, threads: int) -> Any:  # noqa: ANN401 -- a structure of an untyped library
    parameters = native.llama_context_default_params()
    parameters.n_ctx = facts.batch_capacity
    parameters.n_batch = facts.batch_capacity
    parameters.n_ubatch = facts.batch_capacity  # encoders cannot split a batch
    parameters.n_seq_max = facts.max_sequences
    parameters.n_threads = threads
    parameters.n_threads_batch = threads
    parameters.embeddings = True
    parameters.pooling_type = _POOLINGS[facts.pooling]
    parameters.flash_attn_type = _FLASH_ATTENTION
    parameters.kv_unified = True  # the whole window is open to whichever sequence needs it
    parameters.no_perf = True
    return parameters


def _engine_facts(
    profile: ModelProfile, header: GgufFacts, backends: Backends, log: NativeLog, need: MemoryNeed, *, digest: str
) -> EngineFacts:
    capacity = need.capacity
    gpu = backends.gpus[0] if backends.gpus and log.layers_offloaded else None
    return EngineFacts(
        dimensions=profile.dimensions,
        max_tokens=profile.max_tokens,
        pooling=profile.pooling,
        device=gpu.name.lower() if gpu else "cpu",
        description=gpu.description if gpu else "",
        kernels=backends.kernels,
        layers_offloaded=log.layers_offloaded,
        layers_total=log.layers_total or header.layers + 1,
        memory_estimate_bytes=need.total,
        contexts_estimate_bytes=need.after_loading,
        most_contexts=need.context_count,
        batch_capacity=capacity,
        max_sequences=_SEQUENCES,
        digest=digest,
        width=profile.full_dimensions,
        normalizes_cut=profile.normalizes_cut,
    )
