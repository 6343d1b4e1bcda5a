"""An independent computation of BERT in plain NumPy, from the published weights and vocabulary."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import load_file

Array = npt.NDArray[np.float32]


@dataclass
class Reference:
    """BERT as published: WordPiece and post-norm encoder; as an embedder, mean over tokens, unit length."""

    weights: dict[str, Array]
    vocabulary: dict[str, int]
    layers: int
    heads: int
    epsilon: float
    window: int
    computed: dict[str, Array] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: Path, window: int) -> Reference:
        config: dict[str, Any] = json.loads((directory / "config.json").read_text())
        tokenizer: dict[str, Any] = json.loads((directory / "tokenizer.json").read_text())
        return cls(
            load_file(directory / "model.safetensors"),
            tokenizer["model"]["vocab"],
            config["num_hidden_layers"],
            config["num_attention_heads"],
            config["layer_norm_eps"],
            window,
        )

    def tokenize(self, text: str) -> list[int]:
        pieces = [piece for word in split_words(text) for piece in self._pieces(word)]
        return [self.vocabulary["[CLS]"], *pieces[: self.window - 2], self.vocabulary["[SEP]"]]

    def embed(self, text: str) -> Array:
        if text not in self.computed:
            self.computed[text] = self._embed(text)
        return self.computed[text]

    def _embed(self, text: str) -> Array:
        mean = self.states(self.tokenize(text)).mean(axis=0)
        unit: Array = mean / np.linalg.norm(mean)
        return unit

    def states(self, tokens: list[int]) -> Array:
        name = "embeddings."
        states = (
            self.weights[name + "word_embeddings.weight"][tokens]
            + self.weights[name + "position_embeddings.weight"][: len(tokens)]
            + self.weights[name + "token_type_embeddings.weight"][0]
        )
        states = self._norm(states, name + "LayerNorm")
        for layer in range(self.layers):
            states = self._layer(states, f"encoder.layer.{layer}.")
        return states

    def _layer(self, states: Array, name: str) -> Array:
        attended = self._attention(states, name + "attention.self.")
        states = self._norm(
            states + self._linear(attended, name + "attention.output.dense"), name + "attention.output.LayerNorm"
        )
        inner = gelu(self._linear(states, name + "intermediate.dense"))
        return self._norm(states + self._linear(inner, name + "output.dense"), name + "output.LayerNorm")

    def _attention(self, states: Array, name: str) -> Array:
        length, width = states.shape

        def split(part: str) -> Array:
            return self._linear(states, name + part).reshape(length, self.heads, -1).transpose(1, 0, 2)

        query, key, value = split("query"), split("key"), split("value")
        scores = query @ key.transpose(0, 2, 1) / np.sqrt(width // self.heads)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        return (weights @ value).transpose(1, 0, 2).reshape(length, width)

    def _linear(self, states: Array, name: str) -> Array:
        return states @ self.weights[name + ".weight"].T + self.weights[name + ".bias"]

    def _norm(self, states: Array, name: str) -> Array:
        mean, variance = states.mean(axis=-1, keepdims=True), states.var(axis=-1, keepdims=True)
        scaled = (states - mean) / np.sqrt(variance + self.epsilon)
        return scaled * self.weights[name + ".weight"] + self.weights[name + ".bias"]

    def _pieces(self, word: str) -> list[int]:
        found, start = [], 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = ("##" if start else "") + word[start:end]
                if piece in self.vocabulary:
                    found.append(self.vocabulary[piece])
                    start = end
                    break
            else:
                return [self.vocabulary["[UNK]"]]
        return found


def gelu(x: Array) -> Array:
    """With the exact error function, by Abramowitz and Stegun 7.1.26 (1.5e-7)."""
    z = np.abs(x) / np.sqrt(2)
    t = 1 / (1 + 0.3275911 * z)
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    erf = np.sign(x) * (1 - poly * np.exp(-z * z))
    result: Array = 0.5 * x * (1 + erf)
    return result


def split_words(text: str) -> list[str]:
    """Lower case, without accents, split at whitespace, punctuation and every CJK character."""
    out = []
    for char in unicodedata.normalize("NFD", text.lower()):
        category = unicodedata.category(char)
        if char.isspace():
            out.append(" ")
        elif category == "Mn" or category.startswith("C"):
            continue
        elif is_cjk(ord(char)) or category.startswith("P") or (ord(char) < 127 and not char.isalnum()):
            out.append(f" {char} ")
        else:
            out.append(char)
    return "".join(out).split()


def is_cjk(point: int) -> bool:
    return (
        0x4E00 <= point <= 0x9FFF
        or 0x3400 <= point <= 0x4DBF
        or 0xF900 <= point <= 0xFAFF
        or 0x20000 <= point < 0x2FA20
    )
