"""The library's and the embedder's tables of model profiles say the same."""

from dataclasses import fields

from memory_embedder.models.profiles import PROFILES as SERVED
from memory_recall.embedding.profiles import PROFILES, ModelProfile


def test_both_sides_know_the_same_models_in_the_same_way() -> None:
    ours = {name: {f.name: getattr(one, f.name) for f in fields(ModelProfile)} for name, one in PROFILES.items()}
    theirs = {name: {f.name: getattr(one, f.name) for f in fields(ModelProfile)} for name, one in SERVED.items()}
    assert ours == theirs
