"""Makes a model file from weights and a tokenizer, through the converter that everybody's models pass through.

The digest of the file that is written is fixed, so that everybody who makes the file has the same one.
"""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from memory_embedder.models.convert.bert import convert_bert
from memory_embedder.models.model_file import ModelFile
from memory_embedder.models.profiles import PROFILES, Pooling

Weights = Mapping[str, NDArray[Any]]
_POOLING_MODES = {Pooling.MEAN: "pooling_mode_mean_tokens", Pooling.CLS: "pooling_mode_cls_token"}
_LAYER_NORM_EPSILON = 1e-12


def make_file(model: str, out: Path, weights: Weights, tokenizer: bytes, *, heads: int) -> None:
    """Write the GGUF file of a model, in F16; `out` appears only when its digest is that of the model's profile.

    `weights` are the tensors of a BERT by their Hugging Face names, `tokenizer` is the content of `tokenizer.json`, and
    `heads` the number of heads of attention, which no shape of a tensor shows.

    Raises:
        EmbedderError: the converted file has another digest than the model's profile states.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=out.parent) as folder:
        directory, made = Path(folder, model), Path(folder, out.name)
        _write_directory(directory, weights, tokenizer, heads=heads, pooling=PROFILES[model].pooling)
        convert_bert(directory, made, name=model)
        with ModelFile(made) as file:
            file.verified_digest(PROFILES[model].file_digest)
        made.replace(out)


def _write_directory(directory: Path, weights: Weights, tokenizer: bytes, *, heads: int, pooling: Pooling) -> None:
    """Write the files of a Hugging Face directory that the converter reads."""
    layers = {name.split(".")[2] for name in weights if name.startswith("encoder.layer.")}
    config = {
        "model_type": "bert",
        "num_hidden_layers": len(layers),
        "hidden_size": weights["embeddings.word_embeddings.weight"].shape[1],
        "intermediate_size": weights["encoder.layer.0.intermediate.dense.weight"].shape[0],
        "num_attention_heads": heads,
        "max_position_embeddings": weights["embeddings.position_embeddings.weight"].shape[0],
        "type_vocab_size": weights["embeddings.token_type_embeddings.weight"].shape[0],
        "layer_norm_eps": _LAYER_NORM_EPSILON,
    }
    (directory / "1_Pooling").mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(config), encoding="utf-8")
    modes = json.dumps({_POOLING_MODES[pooling]: True})
    (directory / "1_Pooling" / "config.json").write_text(modes, encoding="utf-8")
    (directory / "tokenizer.json").write_bytes(tokenizer)
    save_file({name: np.ascontiguousarray(data) for name, data in weights.items()}, directory / "model.safetensors")
