"""Vectors of a model that was trained for it are cut to fewer dimensions (Matryoshka), by the publisher's own way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from memory_embedder.engine.llama import LlamaEngine
from memory_embedder.engine.protocol import EngineOptions, Vectors
from memory_embedder.errors import EmbedderError
from memory_embedder.models.profiles import DEFAULT_MODEL, PROFILES, ModelProfile
from memory_embedder.settings import EmbedderSettings

TEXTS = ["The boiler was bled in October.", "Backups run nightly at two."]
TRAINED = replace(PROFILES[DEFAULT_MODEL], least_dimensions=32)


@contextmanager
def loaded(path: Path, profile: ModelProfile) -> Iterator[LlamaEngine]:
    engine = LlamaEngine(EngineOptions(path, profile, batch_tokens=256, contexts=1))
    try:
        yield engine
    finally:
        engine.close()


def vectors(path: Path, profile: ModelProfile) -> Vectors:
    with loaded(path, profile) as engine:
        assert engine.facts.dimensions == profile.dimensions
        computer = engine.computer(1)
        try:
            return computer.embed([engine.encode(text).tokens for text in TEXTS])
        finally:
            computer.close()


def unit(rows: Vectors) -> Vectors:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_a_cut_vector_is_the_beginning_of_the_whole_one_at_length_one(f16_file: Path) -> None:
    whole = vectors(f16_file, TRAINED)
    cut = vectors(f16_file, TRAINED.cut_to(128))
    assert cut.shape == (2, 128)
    assert np.allclose(cut, unit(whole[:, :128]), atol=1e-6)


def test_a_model_whose_publisher_says_so_is_normalized_before_it_is_cut(f16_file: Path) -> None:
    """The reference is the formula of nomic-embed-text-v1.5's card; the scale of a vector does not matter to it."""
    whole = vectors(f16_file, TRAINED).astype(np.float64)
    normalized = (whole - whole.mean(axis=1, keepdims=True)) / whole.std(axis=1, keepdims=True)
    cut = vectors(f16_file, replace(TRAINED, normalizes_cut=True).cut_to(64))
    assert np.allclose(cut, unit(normalized[:, :64]), atol=1e-4)
    assert not np.allclose(cut, unit(whole[:, :64]), atol=1e-3), "it makes a difference"


@pytest.mark.parametrize(
    ("model_name", "dimensions", "served"),
    [
        ("Qwen3-Embedding-0.6B", None, 1024),
        ("Qwen3-Embedding-0.6B", 1024, 1024),
        ("Qwen3-Embedding-0.6B", 512, 512),
        ("Qwen3-Embedding-0.6B", 32, 32),
        ("nomic-embed-text-v1.5", 256, 256),
    ],
)
def test_the_command_line_says_the_number(model_name: str, dimensions: int | None, served: int) -> None:
    profile = EmbedderSettings(model=model_name, dimensions=dimensions).profile()
    assert (profile.dimensions, profile.width) == (served, PROFILES[model_name].dimensions)


@pytest.mark.parametrize(
    ("model_name", "dimensions", "says"),
    [
        (DEFAULT_MODEL, 128, "yields 384; declare"),
        ("Qwen3-Embedding-0.6B", 31, "yields 1024, or any number from 32 on"),
        ("Qwen3-Embedding-0.6B", 2048, "yields 1024, or any number from 32 on"),
        ("nomic-embed-text-v1.5", 63, "yields 768, or any number from 64 on"),
    ],
)
def test_a_number_that_the_model_was_not_trained_for_is_refused(model_name: str, dimensions: int, says: str) -> None:
    with pytest.raises(EmbedderError, match=says):
        EmbedderSettings(model=model_name, dimensions=dimensions).profile()


def test_a_file_of_another_width_is_refused_whatever_it_is_cut_to(f16_file: Path) -> None:
    wide = replace(TRAINED, dimensions=768).cut_to(384)
    with pytest.raises(EmbedderError, match=r"yields 384 dimensions but .* is declared with 768"):
        LlamaEngine(EngineOptions(f16_file, wide, batch_tokens=256, contexts=1))
