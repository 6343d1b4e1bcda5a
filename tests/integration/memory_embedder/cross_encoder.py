"""A small cross-encoder of random weights as a GGUF file, and its scores by a plain NumPy forward pass."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from memory_embedder.models.convert.bert import read_vocabulary
from tests.integration.memory_embedder.numpy_reference import Reference
from tests.support.model_files.random_weights import write_cross_encoder

WIDTH, HEADS, LAYERS, WINDOW = 64, 4, 2, 48


def random_weights(vocabulary: int, *, token_types: int) -> dict[str, Any]:
    """Weights large enough that every part of the network shows in the score, biases and norms included."""
    rng = np.random.default_rng(5)
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (vocabulary, WIDTH),
        "embeddings.position_embeddings.weight": (WINDOW, WIDTH),
        "embeddings.token_type_embeddings.weight": (token_types, WIDTH),
    }
    linear = {"pooler.dense": (WIDTH, WIDTH), "classifier": (1, WIDTH)}
    norms = ["embeddings.LayerNorm"]
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}."
        linear |= dict.fromkeys([f"{name}attention.self.{part}" for part in ("query", "key", "value")], (WIDTH, WIDTH))
        linear |= {f"{name}attention.output.dense": (WIDTH, WIDTH), f"{name}intermediate.dense": (4 * WIDTH, WIDTH)}
        linear |= {f"{name}output.dense": (WIDTH, 4 * WIDTH)}
        norms += [f"{name}attention.output.LayerNorm", f"{name}output.LayerNorm"]
    shapes |= {f"{name}.weight": shape for name, shape in linear.items()}
    shapes |= {f"{name}.bias": shape[:1] for name, shape in linear.items()}
    shapes |= {f"{norm}.{part}": (WIDTH,) for norm in norms for part in ("weight", "bias")}
    weights = {name: rng.standard_normal(shape, dtype=np.float32) * 0.2 for name, shape in shapes.items()}
    return weights | {f"{norm}.weight": 1 + weights[f"{norm}.weight"] for norm in norms}


@dataclass
class CrossEncoder:
    path: Path
    reference: Reference
    weights: dict[str, Any]

    def tokens(self, query: str, text: str) -> list[int]:
        """[CLS] query [SEP] text [SEP], of which the query has at most half of the window."""
        first = self.reference.tokenize(query)
        first = [*first[:-1][: WINDOW // 2 - 1], first[-1]]
        second = self.reference.tokenize(text)[1:]
        return [*first, *second[:-1][: WINDOW - len(first) - 1], second[-1]]

    def score(self, query: str, text: str) -> float:
        state = self.reference.states(self.tokens(query, text))[0]
        pooled = np.tanh(state @ self.weights["pooler.dense.weight"].T + self.weights["pooler.dense.bias"])
        return float((pooled @ self.weights["classifier.weight"].T + self.weights["classifier.bias"])[0])


def make_cross_encoder(
    model_directory: Path, reference: Reference, path: Path, *, token_types: int = 1
) -> CrossEncoder:
    vocabulary = read_vocabulary(model_directory)
    weights = random_weights(len(vocabulary.pieces), token_types=token_types)
    write_cross_encoder(path, vocabulary, weights, heads=HEADS, token_types=token_types)
    network = Reference(weights, reference.vocabulary, LAYERS, HEADS, 1e-12, window=WINDOW + 400)
    return CrossEncoder(path, network, weights)
