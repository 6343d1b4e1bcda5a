"""The library and the embedder never import each other; these tests keep what they share the same."""

from memory_embedder.models import profiles as served
from memory_recall.embedding import profiles as known


def test_both_sides_know_the_same_models() -> None:
    """A model that the embedder can serve is known to the library under the same name, and the other way round."""
    assert set(served.PROFILES) == set(known.PROFILES)


def test_both_sides_agree_on_every_model() -> None:
    """Dimensions, limits, pooling, prefixes and licence of a model are the same on both sides."""
    for name, profile in known.PROFILES.items():
        other = served.PROFILES[name]
        for field in ("dimensions", "max_tokens", "pooling", "query_prefix", "document_prefix", "licence"):
            assert str(getattr(profile, field)) == str(getattr(other, field)), (name, field)
