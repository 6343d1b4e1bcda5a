"""Which embedder an application turns to, where it has clients of hosted ones beside the recorded memory-embedder."""

import pytest

from memory_recall.embedding.client import EmbedderClient
from memory_recall.embedding.following import FollowingEmbedder
from tests.support.voyage import voyage_client

NEAR = "http://mi-embedder:8080"


async def test_an_embedder_of_any_model_at_the_recorded_address_is_not_left_for_itself() -> None:
    """A second client of the same service would only be tried in turn with the first while the service is away."""
    embedder = FollowingEmbedder(NEAR)
    assert not embedder.follow("tiny", NEAR, embedder.current, failed=True)
    await embedder.close()


@pytest.mark.parametrize(("recorded", "near"), [("http://mi-embedder-next:8080", True), (None, False)])
async def test_a_recorded_memory_embedder_comes_before_a_hosted_client_of_its_model(
    recorded: str | None, *, near: bool
) -> None:
    """No query goes beyond the cluster while an embedder in it serves the model."""
    hosted = voyage_client("next", 8, "key")
    embedder = FollowingEmbedder(NEAR, "tiny", others=[hosted])
    try:
        assert embedder.follow("next", recorded, embedder.current, failed=False)
        assert isinstance(embedder.current, EmbedderClient) is near
        assert embedder.hosted is not near
        assert embedder.current.base_url == (recorded or hosted.base_url)
    finally:
        await embedder.close()
