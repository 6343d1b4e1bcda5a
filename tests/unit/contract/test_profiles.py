"""The library and the embedder never import each other; these tests keep what they share the same."""

from dataclasses import fields

from memory_embedder.models import profiles as served
from memory_recall.embedding import profiles as known


def test_both_sides_know_the_same_models() -> None:
    """A model that the embedder can serve is known to the library under the same name, and the other way round."""
    assert set(served.PROFILES) == set(known.PROFILES)


def test_both_sides_agree_on_every_model() -> None:
    """Every field of the library's profile, such as dimensions, pooling and prefixes, is the same on both sides."""
    for name, profile in known.PROFILES.items():
        for field in fields(known.ModelProfile):
            assert getattr(profile, field.name) == getattr(served.PROFILES[name], field.name), (name, field.name)
