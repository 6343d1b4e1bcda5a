"""Physical copies of a Postgres server, made by pg_basebackup: each is indexed as itself, and none as its original."""

from collections.abc import Iterator

import pytest

from tests.support.cluster.environment.copies import SITUATIONS, Scene, opened_scene, try_out
from tests.support.cluster.platform import Platform

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def scene(platform: Platform) -> Iterator[Scene]:
    """An indexed server and two physical copies of it."""
    platform.postgres.wait_ready()
    with opened_scene(platform) as opened:
        yield opened


@pytest.mark.parametrize("name", SITUATIONS)
@pytest.mark.finding("operator F2")
@pytest.mark.finding("operator F3")
def test_a_copy_is_told_apart_and_its_original_stays_as_it_was(scene: Scene, name: str) -> None:
    assert try_out(scene, name), "the original was changed"
