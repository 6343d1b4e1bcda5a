"""A Hugging Face directory of a BERT so small that converting it takes no time."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

WIDTH, POSITIONS = 32, 16


def write_tiny_bert(folder: Path) -> Path:
    """Writes a BERT of one layer with random weights; returns its directory."""
    directory = folder / "tiny"
    (directory / "1_Pooling").mkdir(parents=True)
    config = {
        "model_type": "bert",
        "num_hidden_layers": 1,
        "hidden_size": WIDTH,
        "intermediate_size": 64,
        "num_attention_heads": 2,
        "max_position_embeddings": POSITIONS,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
    }
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]", "mem", "##ory", "ory"]
    (directory / "vocab.txt").write_text("\n".join(pieces) + "\n")
    random = np.random.default_rng(1)
    shapes = {
        "embeddings.word_embeddings.weight": (9, WIDTH),
        "embeddings.position_embeddings.weight": (POSITIONS, WIDTH),
    }
    shapes |= {"embeddings.token_type_embeddings.weight": (2, WIDTH), "pooler.dense.weight": (WIDTH, WIDTH)}
    layer = "encoder.layer.0."
    for part in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
        shapes |= {f"{layer}{part}.weight": (WIDTH, WIDTH), f"{layer}{part}.bias": (WIDTH,)}
    shapes |= {f"{layer}intermediate.dense.weight": (64, WIDTH), f"{layer}intermediate.dense.bias": (64,)}
    shapes |= {f"{layer}output.dense.weight": (WIDTH, 64), f"{layer}output.dense.bias": (WIDTH,)}
    norms = ("embeddings.LayerNorm", f"{layer}attention.output.LayerNorm", f"{layer}output.LayerNorm")
    shapes |= {f"{norm}.{part}": (WIDTH,) for norm in norms for part in ("gamma", "beta")}
    weights = {f"bert.{name}": random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    save_file(weights, directory / "model.safetensors")
    return directory


def change_configuration(directory: Path, **values: object) -> None:
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
