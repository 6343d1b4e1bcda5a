"""The canary of a model: the same model is known again, and another one, or another use of it, is told apart."""

import numpy as np
import pytest

from memory_recall.embedding.canary import CANARY_PREFIX, Canary, is_same_file, may_be_same_file
from memory_recall.embedding.wire import EmbeddedBatch, joined
from memory_recall.errors import ModelMismatch

pytestmark = pytest.mark.finding("mission 4.3")

RANDOM = np.random.default_rng(7)
VECTORS = RANDOM.standard_normal((3, 384))
SHA = "sha256:aa"


def canary(vectors: "np.ndarray[tuple[int, int], np.dtype[np.float64]]") -> str:
    return str(Canary.of(vectors.tolist()))


def noisy(share: float) -> str:
    """The canary of vectors to each number of which noise is added, as a share of its usual size."""
    return canary(VECTORS + share * np.random.default_rng(8).standard_normal(VECTORS.shape))


RECORDED = canary(VECTORS)


@pytest.mark.parametrize("scale", [1.0, 0.001, 7.0])
@pytest.mark.parametrize("dimensions", [8, 64, 384, 4000])
def test_what_is_written_is_read_again_and_matches_whatever_the_length_of_the_vectors(
    scale: float, dimensions: int
) -> None:
    vectors = RANDOM.standard_normal((3, dimensions))
    written = canary(vectors)
    assert len(written) < 300, "it stands in the place of a digest"
    read = Canary.parse(written)
    assert read is not None
    assert str(read) == written
    assert read.matches(Canary.of((scale * vectors).tolist()))


@pytest.mark.parametrize(
    ("given", "same"),  # None where nothing is known
    [
        (noisy(0.0005), True),  # another engine
        (noisy(0.01), True),  # a coarser precision
        (noisy(0.1), False),  # a cosine of .995
        (canary(RANDOM.standard_normal((3, 384))), False),
        (canary(VECTORS[[0, 1, 0]]), False),  # the query without its prefix, say
        (canary(VECTORS[:, :32]), False),
        (canary(-VECTORS), False),
        (canary(np.zeros((3, 384))), False),
        (CANARY_PREFIX, False),
        (None, None),
        (SHA, None),
    ],
)
def test_a_canary_matches_that_of_the_same_model_alone_and_nothing_is_known_of_others(
    given: str | None, same: bool | None
) -> None:
    """What nobody knows refuses no embedder, and lets no vector of the one be used for the other."""
    for pair in ((RECORDED, given), (given, RECORDED)):
        assert may_be_same_file(*pair) is (same is not False)
        assert is_same_file(*pair) is (same is True)


@pytest.mark.parametrize(
    ("one", "other", "same"), [(SHA, SHA, True), (SHA, "sha256:bb", False), (None, SHA, None), (SHA, "canary", False)]
)
def test_digests_of_files_are_compared_as_they_are(one: str | None, other: str, same: bool | None) -> None:
    assert may_be_same_file(one, other) is (same is not False)
    assert is_same_file(one, other) is (same is True)


@pytest.mark.parametrize("text", ["", SHA, "canary", "canary:!", "canary:é", "canary:AAA"])
def test_what_is_no_canary_is_read_as_none(text: str) -> None:
    assert Canary.parse(text) is None


def answer(digest: str | None) -> EmbeddedBatch:
    return EmbeddedBatch(np.ones((1, 8), dtype=np.float32), 1, digest)


@pytest.mark.parametrize("digests", [(SHA, "sha256:bb"), (RECORDED, noisy(0.1)), (SHA, None, "sha256:bb")])
def test_answers_of_two_files_are_not_joined_to_a_batch_of_an_unknown_one(digests: tuple[str | None, ...]) -> None:
    with pytest.raises(ModelMismatch, match="different files"):
        joined(list(map(answer, digests)))


@pytest.mark.parametrize(
    ("digests", "told"),
    [
        ((SHA, SHA), SHA),
        ((RECORDED, noisy(0.0005)), noisy(0.0005)),  # measured once more between two requests
        ((SHA, None), SHA),
        ((None, None), None),
    ],
)
def test_a_batch_of_several_answers_is_of_the_file_that_they_tell(
    digests: tuple[str | None, ...], told: str | None
) -> None:
    assert joined(list(map(answer, digests))).digest == told
